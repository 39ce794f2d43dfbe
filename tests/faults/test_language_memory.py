"""A step from the features of a head holds the same at any length; `make test-faults` looks at the full sizes."""

import os

from benchmarks.language import MOST_BYTES, MOST_GROWTH, bytes_beyond, from_logits

LENGTHS = (1024, 2048, 8192) if os.environ.get("TPKD_FAULTS") == "full" else (512, 1536)


def test_memory_of_a_step_does_not_grow_with_positions_times_classes():
    """49,152 classes: what is held beyond parameters, gradients and activations."""
    beyond = [bytes_beyond(length) for length in LENGTHS]
    assert max(beyond) <= MOST_BYTES
    assert max(beyond) <= MOST_GROWTH * min(beyond)


def test_the_measure_sees_logits_that_are_held():
    length = 1024
    assert bytes_beyond(length, from_logits) >= 4 * length * 49_152
