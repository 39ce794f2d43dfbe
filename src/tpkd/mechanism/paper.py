"""Whether a mechanism study is one of the paper's: the run, the states and the sizes of its appendix."""

from collections.abc import Iterator
from typing import Any

from tpkd.mechanism.record import (
    BlockingRecord,
    CertificatesRecord,
    ContinuationRecord,
    ExactHeadRecord,
    StudyRecord,
    states_of,
)

PAPER_BETA = 0.5
"""`tpkd.geometry.PAPER_BETA` again, because tables load no torch; a test compares the two."""
PAPER_STATES = {
    "CE20": ("50.00", "1.696", "7.520"),
    "CE40": ("55.29", "1.766", "7.632"),
    "CE60": ("58.90", "1.803", "7.569"),
}
PAPER_EXACT = {
    "CE20": ("1.195", "-1.359", "52.13", "0.7220", "-3.302"),
    "CE60": ("1.213", "-1.283", "52.13", "0.7221", "-1.831"),
}
PAPER_CERTIFICATE = {"CE20": ("16/16", "16/16", "16/16", "8.252"), "CE60": ("16/16", "16/16", "16/16", "9.886")}
PAPER_CONTINUATION = ("1.800", "1.557", "-0.244", "-0.320")

_STATES = ("CE20", "CE40", "CE60")
_ENDS = ("CE20", "CE60")
_POINTS = (0, 1, 8, 32, 64, 128)


def departures(record: StudyRecord) -> tuple[str, ...]:
    """What is not as in the paper's appendix; its numbers stand beside a study only where this is empty.

    Paper: appendix E.2 to E.4. The paper does not say which samples it used; we require the shipped seed.
    """
    return tuple(
        f"{name}: expected {_plain(expected)}, found {_plain(found)}"
        for name, expected, found in _facts(record)
        if expected != found
    )


def _facts(record: StudyRecord) -> Iterator[tuple[str, Any, Any]]:
    for looked_at in states_of(record):
        yield f"{looked_at.name}: file", None, looked_at.file
        yield f"{looked_at.name}: optimizer", None, looked_at.optimizer
    yield "objective", "ce", record.source.objective
    yield "seed", 42, record.source.seed
    yield "study_seed", 0, record.study_seed
    yield "tolerance", 1e-12, record.tolerance
    for scaling in record.scalings:
        yield scaling.name, scaling.asked, scaling.used
    if isinstance(record, BlockingRecord):
        for split in record.splits:
            yield f"{split.split}: samples", 2000, len(split.sample_ids)
            yield f"{split.split}: views", 8, split.num_views
            yield f"{split.split}: states", _STATES, tuple(state.state.name for state in split.states)
    if isinstance(record, ExactHeadRecord | CertificatesRecord | ContinuationRecord):
        yield "beta", PAPER_BETA, record.beta
        yield "batch_size", 64, record.batch_size
    if isinstance(record, ExactHeadRecord | CertificatesRecord):
        count = 32 if isinstance(record, ExactHeadRecord) else 16
        yield "states", _ENDS, tuple(state.state.name for state in record.states)
        for state in record.states:
            yield f"{state.state.name}: batches", count, len(state.batches)
    if isinstance(record, ExactHeadRecord):
        yield "step_size", 0.01, record.step_size
    if isinstance(record, CertificatesRecord | ContinuationRecord):
        yield "learning_rate", 1e-4, record.learning_rate
    if isinstance(record, CertificatesRecord):
        yield "microbatch", 8, record.microbatch
        yield "native_microbatch", 32, record.native_microbatch
        yield "rank_tolerance", 1e-10, record.rank_tolerance
        yield "spectral_tolerance", 1e-12, record.spectral_tolerance
    if isinstance(record, ContinuationRecord):
        yield "state", _STATES[-1], record.state.name
        yield "iterations", 128, record.iterations
        yield "observation", 2048, len(record.observation_ids)
        for curve in record.curves:
            yield f"{curve.objective}: points", _POINTS, tuple(point.iteration for point in curve.points)


def _plain(value: Any) -> str:
    return ", ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)
