"""The mechanism studies as small tables of text, in the paper's columns."""

from collections.abc import Iterator
from dataclasses import dataclass

from tpkd.records import (
    BlockingRecord,
    CertificatesRecord,
    ContinuationRecord,
    ExactHeadRecord,
    StudyRecord,
)
from tpkd.report.numbers import count, nats, share


@dataclass(frozen=True)
class StudyTable:
    """A table as a person reads it; the first column is text, the others are numbers."""

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def study_table(record: StudyRecord) -> StudyTable:
    """The table of a study.

    Paper: section 6, in the layout of its tables; the continuation, which has none there, has one row an objective.
    """
    if isinstance(record, BlockingRecord):
        return _blocking(record)
    if isinstance(record, ExactHeadRecord):
        return _exact_head(record)
    if isinstance(record, CertificatesRecord):
        return _certificates(record)
    if isinstance(record, ContinuationRecord):
        return _continuation(record)
    raise ValueError(f"record: expected a mechanism study, got {type(record).__name__}")


def _blocking(record: BlockingRecord) -> StudyTable:
    rows = (
        (
            f"{state.state.name}, {split.split}",
            count(state.pairs),
            share(state.blocked_share),
            nats(state.conditional_loss),
            nats(state.transfer_cost),
            f"{state.positive}/{state.blocked}",
        )
        for split in record.splits
        for state in split.states
    )
    headings = ("state", "pairs", "blocked", "conditional KL", "log-odds cost", "positive")
    return StudyTable("KL and cost are means over the blocked pairs, in nats", headings, tuple(rows))


def _exact_head(record: ExactHeadRecord) -> StudyTable:
    rows = (
        (
            state.state.name,
            thousandths(state.gain),
            thousandths(state.conditional_change),
            f"{100 * state.least_retention:.2f} %",
            f"{state.least_cosine:.4f}",
            thousandths(state.potential_change),
        )
        for state in record.states
    )
    headings = ("state", "gain", "KL change", "min. retained", "min. cosine", "Phi change")
    caption = "KL is conditional KL; gain and changes in thousandths of a nat"
    return StudyTable(caption, headings, tuple(rows))


def _certificates(record: CertificatesRecord) -> StudyTable:
    rows = []
    for state in record.states:
        batches = len(state.batches)
        passed = (state.conditional_passes, state.joint_passes, state.positive_pairs)
        rows.append((state.state.name, *(f"{number}/{batches}" for number in passed), thousandths(state.gain)))
    headings = ("state", "conditional test", "joint descent test", "positive pairs", "mean gain")
    return StudyTable(
        "gain: conditional KL of compensation only minus TPKD's, in thousandths of a nat", headings, tuple(rows)
    )


def _continuation(record: ContinuationRecord) -> StudyTable:
    points = [point.iteration for point in record.curves[0].points]
    rows = [(curve.objective, *(nats(point.conditional_loss) for point in curve.points)) for curve in record.curves]
    caption = (
        f"conditional KL of {count(len(record.observation_ids))} observed samples by iteration; at the end TPKD - CE "
        f"{record.tpkd_minus_ce:+.3f}, TPKD - compensation only {record.tpkd_minus_compensation:+.3f}"
    )
    return StudyTable(caption, (f"from {record.state.name}", *map(str, points)), tuple(rows))


def study_notes(record: StudyRecord) -> Iterator[str]:
    """What was scaled down or left out, what was counted, and what was checked."""
    for scaled in record.scalings:
        yield f"{scaled.name}: {scaled.used} instead of {scaled.asked}, because {scaled.reason}"
    if isinstance(record, BlockingRecord):
        for split, reason in record.missing.items():
            yield f"{split}: left out, because {reason}"
    if isinstance(record, ExactHeadRecord):
        for state in record.states:
            lost = ", ".join(f"{name} {number}" for name, number in state.lost_examples.items())
            yield (
                f"{state.state.name}: TPKD gains on {state.positive_examples} of {state.examples} examples; "
                f"examples that lost a margin of the CE step: {lost}"
            )
    for check in record.checks:
        if check.violations:
            kind = "VIOLATION" if check.theorem else "not always"
            yield f"{kind}: {check.statement}: {check.violations} of {check.cases} cases, by up to {check.worst:.3g}"
    theorems = [check for check in record.checks if check.theorem]
    if theorems and not record.violations:
        yield f"{sum(check.cases for check in theorems):,} cases of {len(theorems)} statements of the theory hold"


def thousandths(value: float) -> str:
    """A small number in thousandths, as the paper prints gains.

    Example:
        >>> thousandths(0.001195), thousandths(-0.003302)
        ('1.195', '-3.302')
    """
    return f"{1000 * value:.3f}"
