"""The paper's empirical claims checked against the records: supported, not supported, or too little data to tell."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from tpkd.compare.record import PairedDifference, ReportRecords
from tpkd.compare.tables import find_pair
from tpkd.report.numbers import plural
from tpkd.report.tables import Column, Content, Row, Table, Traced

SUPPORTED, NOT_SUPPORTED, UNDECIDED = "supported", "not supported", "too small to tell"
_FEWEST_BLOCKED = 30
"""Minimum number of blocked pairs for a verdict about blocking, unless one of them is a counterexample."""

_LITTLE = 0.005
"""Half a percentage point: the largest cost of the projection that still counts as small."""


@dataclass(frozen=True)
class _Claim:
    """One row."""

    statement: str
    found: Content
    interval: Content
    cases: str
    verdict: str


def claims_table(records: ReportRecords) -> Table | None:
    """The paper's claims about its experiments next to these records; None if the records cover none of them.

    A claim about seeds is supported where the interval of the paired difference lies on its side of zero, not supported
    where it lies on the other, and too small to tell where it contains zero. A claim about cases is supported where all
    of them agree. These are claims about experiments: nothing here decides a theorem.
    """
    rows: tuple[Row, ...] = tuple(
        (claim.statement, claim.found, claim.interval, claim.cases, claim.verdict)
        for claim in (*_accuracy(records), *_blocking(records), *_exact_head(records), *_network(records))
    )
    columns = (
        Column("claim of the paper", text=True),
        Column("here"),
        Column("interval"),
        Column("n", text=True),
        Column("this run", text=True),
    )
    record = records.comparison
    level = f"{100 * record.confidence_level:g} %"
    intervals = f", with {level} t-intervals; each interval holds for itself" if record.has_intervals else ""
    caption = f"The paper's claims and these records. Differences are paired by seed, in points{intervals}."
    return Table("claims", caption, columns, rows) if rows else None


def _accuracy(records: ReportRecords) -> Iterator[_Claim]:
    above = partial(_one_sided, sign=1)
    below = partial(_one_sided, sign=-1)
    claims: list[tuple[str, str, str, Callable[[PairedDifference], str]]] = [
        ("tpkd", "kd", "TPKD ends above KD", above),
        ("tpkd", "ce", "TPKD ends above CE", above),
        ("tpkd-no-ce", "tpkd", "without the label gradient accuracy is lower than TPKD's", below),
        ("safe-full-kl", "tpkd", "protecting full imitation instead is below TPKD", below),
        (
            "tpkd-no-projection",
            "tpkd",
            f"the projection costs little (not more than {100 * _LITTLE:g} points)",
            partial(_within, limit=_LITTLE),
        ),
    ]
    for objective, reference, statement, verdict in claims:
        found = find_pair(records, objective, reference)
        if found is not None:
            pair, seen = found
            difference: Content = (
                f"{records.methods.title(objective)} − {records.methods.title(reference)}: ",
                seen.mean("points"),
            )
            interval: Content = "none" if pair.low is None else (seen.low("points"), " to ", seen.high("points"))
            yield _Claim(statement, difference, interval, plural(len(pair.seeds), "seed"), verdict(pair))


def _one_sided(pair: PairedDifference, sign: int) -> str:
    if pair.low is None or pair.high is None or pair.low <= 0 <= pair.high:
        return UNDECIDED
    return SUPPORTED if sign * pair.mean > 0 else NOT_SUPPORTED


def _within(pair: PairedDifference, limit: float) -> str:
    """Whether an objective exceeds the reference by at most `limit`."""
    if pair.low is None or pair.high is None:
        return UNDECIDED
    if pair.high <= limit:
        return SUPPORTED
    return NOT_SUPPORTED if pair.low > limit else UNDECIDED


def _blocking(records: ReportRecords) -> Iterator[_Claim]:
    if records.blocking is None:
        return
    for split, part in zip(records.blocking.splits, Traced(records).blocking.splits, strict=True):
        cases = f"{split.states[0].pairs:,} pairs of {split.split} samples and views"
        if len(split.states) > 1:
            shares = [state.blocked_share for state in split.states]
            grows = all(later > earlier for earlier, later in pairwise(shares))
            each = [state.blocked_share("share") for state in part.states]
            found: Content = (each[0], *(part for share in each[1:] for part in (", ", share)))
            few = max(state.blocked for state in split.states) < _FEWEST_BLOCKED
            verdict = UNDECIDED if few else SUPPORTED if grows else NOT_SUPPORTED
            yield _Claim("blocking grows from state to state while labels are learned", found, "none", cases, verdict)
        final = split.states[-1]
        statement = "knowledge remains where imitation is blocked"
        left: Content = (part.states[len(split.states) - 1].conditional_loss("nats"), " nats of conditional KL")
        if final.blocked == 0:
            yield _Claim(statement, "nothing is blocked", "none", cases, UNDECIDED)
        else:
            of = f"{final.positive:,} of {final.blocked:,} blocked pairs ({split.split})"
            few = final.blocked < _FEWEST_BLOCKED
            verdict = NOT_SUPPORTED if final.positive < final.blocked else UNDECIDED if few else SUPPORTED
            yield _Claim(statement, left, "none", of, verdict)


def _exact_head(records: ReportRecords) -> Iterator[_Claim]:
    if records.exact_head is None:
        return
    states = records.exact_head.states
    batches, examples = sum(len(state.batches) for state in states), sum(state.examples for state in states)
    positive = sum(state.positive_batches for state in states)
    kept, lost = (sum(state.lost_examples[name] for state in states) for name in ("tpkd", "tpkd-no-projection"))
    statement = "an exact step of TPKD's learns more conditional knowledge than CE's"
    yield _counted(statement, f"{positive} of {batches} batches", f"{batches} batches", positive == batches)
    statement = "it loses no margin of the CE step; without projection every example loses one"
    found, holds = f"{kept:,} and {lost:,} examples", kept == 0 and lost == examples
    yield _counted(statement, found, f"{examples:,} examples", holds)


def _network(records: ReportRecords) -> Iterator[_Claim]:
    if records.certificates is not None:
        states = records.certificates.states
        pairs, positive = sum(len(state.batches) for state in states), sum(state.positive_pairs for state in states)
        statement = "the gain survives backpropagation: an iteration of TPKD learns more than compensation alone"
        cases = f"{pairs} pairs of iterations"
        yield _counted(statement, f"{positive} of {pairs} pairs", cases, positive == pairs)
    if records.continuation is not None:
        record, seen = records.continuation, Traced(records).continuation
        cases = f"one run of {record.iterations} iterations, {len(record.observation_ids):,} samples"
        ends = {"CE": seen.tpkd_minus_ce, "compensation only": seen.tpkd_minus_compensation}
        for other, end in ends.items():
            statement = f"the gain accumulates: TPKD's conditional KL ends below that of {other}"
            difference = end("signed_nats")
            yield _counted(statement, (difference, " nats"), cases, difference.value < 0)


def _counted(statement: str, found: Content, cases: str, holds: bool) -> _Claim:
    """A claim about counted cases, without an interval."""
    return _Claim(statement, found, "none", cases, SUPPORTED if holds else NOT_SUPPORTED)
