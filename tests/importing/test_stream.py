"""Runs of rows, whatever the lengths of the parts."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from tpkd.importing.stream import RowStream


def stream_of(lengths, opened=None):
    def parts():
        if opened is not None:
            opened.append(1)
        start = 0
        for length in lengths:
            rows = torch.arange(start, start + length)
            yield {"x": rows, "y": rows.unsqueeze(-1).expand(-1, 2)}
            start += length

    return RowStream(parts)


@pytest.mark.parametrize("lengths", [[20], [1] * 20, [3, 0, 7, 10], [19, 1]])
def test_runs_in_order_with_gaps_are_those_asked_for_and_the_file_is_opened_once(lengths):
    random = np.random.default_rng(0)
    for _ in range(20):
        opened, bounds = [], np.sort(random.choice(21, size=random.integers(2, 9), replace=False))
        stream = stream_of(lengths, opened)
        for start, stop in pairwise(bounds.tolist()):
            if random.random() < 0.7:
                found = stream.read(start, stop)
                assert found["x"].tolist() == list(range(start, stop))
                assert found["y"][:, 1].tolist() == found["x"].tolist()
        assert len(opened) <= 1


def test_a_run_before_the_last_one_opens_the_file_again():
    opened = []
    stream = stream_of([4, 4], opened)
    assert not opened
    assert [stream.read(*bounds)["x"].tolist() for bounds in ((3, 6), (1, 2), (2, 8))] == [
        [3, 4, 5],
        [1],
        [2, 3, 4, 5, 6, 7],
    ]
    assert len(opened) == 2


def test_nothing_that_was_passed_is_held():
    stream = stream_of([1] * 1000)
    stream.read(990, 995)
    assert sum(len(rows) for rows in stream._held.values()) == 0
