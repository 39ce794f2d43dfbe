"""The paper's empirical claims checked against the records, by the rules of `tpkd.compare.verdicts`."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from tpkd.compare.owner.record import ClaimedPair
from tpkd.compare.record import PairedDifference, ReportRecords
from tpkd.compare.tables import find_pair
from tpkd.compare.verdicts import (
    GROWTH,
    NOT_SUPPORTED,
    PAPER_CLAIMS,
    SUPPORTED,
    AccuracyClaim,
    Measured,
    gains,
    holm,
    judge_accuracy,
    judge_continuation,
    judge_growth,
    judge_remaining,
    measure,
)
from tpkd.mechanism.record import ContinuationRecord
from tpkd.report.numbers import nats, plural, points, signed_nats
from tpkd.report.tables import Column, Content, Row, Table, Traced


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

    Accuracy needs ten seeds and a start over which cross-entropy gains; of the intervals over seeds, and over seeds and
    test samples, the wider decides, after Holm's correction over all claims about accuracy. These are claims about
    experiments: nothing here decides a theorem. Identities of exact steps are in the table of checks.
    """
    rows: tuple[Row, ...] = tuple(
        (claim.statement, claim.found, claim.interval, claim.cases, claim.verdict)
        for claim in (*_accuracy(records), *_blocking(records), *_network(records))
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
    intervals = ""
    if record.has_intervals:
        intervals = f", with {level} t-intervals, each for itself; verdicts on accuracy are corrected by Holm's method"
    caption = f"The paper's claims and these records. Differences are paired by seed, in points{intervals}."
    return Table("claims", caption, columns, rows) if rows else None


@dataclass(frozen=True)
class _Pair:
    """What is known about an accuracy claim."""

    claim: AccuracyClaim
    pair: PairedDifference
    seen: Traced
    wider: Traced | None
    """The interval over seeds and test samples, if it is known; it contains the other."""
    measured: Measured


def _accuracy(records: ReportRecords) -> Iterator[_Claim]:
    pairs = [pair for claim in PAPER_CLAIMS if (pair := _pair(records, claim)) is not None]
    adjusted = holm([pair.claim.p_value(pair.measured) for pair in pairs])
    asked = _asked(records)
    for each, p_value in zip(pairs, adjusted, strict=True):
        claim, title = each.claim, records.methods.title
        found: Content = (f"{title(claim.left)} − {title(claim.right)}: ", each.seen.mean("points"))
        shown = each.wider or each.seen
        interval: Content = "none" if each.pair.low is None else (shown.low("points"), " to ", shown.high("points"))
        verdict = judge_accuracy(claim, each.measured, p_value, asked=asked)
        yield _Claim(claim.statement, found, interval, plural(len(each.pair.seeds), "seed"), verdict)


def _pair(records: ReportRecords, claim: AccuracyClaim) -> _Pair | None:
    found = find_pair(records, claim.left, claim.right)
    if found is None:
        return None
    known: tuple[ClaimedPair, ...] = records.assessment.claimed if records.assessment else ()
    places = [
        place for place, each in enumerate(known) if (each.objective, each.reference) == (claim.left, claim.right)
    ]
    errors = [known[place].error for place in places]
    wider = Traced(records).assessment.claimed[places[0]] if places else None
    return _Pair(claim, *found, wider, measure(found[0].differences, *errors))


def _asked(records: ReportRecords) -> bool:
    """Whether cross-entropy gains over the start; where either is unknown, nothing speaks against it."""
    start = records.comparison.start.accuracy if records.comparison.start else None
    accuracies = [method.accuracies for method in records.comparison.methods if method.objective == "ce"]
    if start is None or not accuracies or not accuracies[0]:
        return True
    return gains(accuracies[0], [start] * len(accuracies[0]))


def _blocking(records: ReportRecords) -> Iterator[_Claim]:
    """Blocking over the training of the CE runs, and what is left where it has come to."""
    cells = [cell for cell in records.comparison.cells if cell.objective == "ce" and cell.status == "finished"]
    curves = [cell.curves.blocked_share for cell in cells if cell.curves and len(cell.curves.epochs) > 1]
    if curves:
        grown = [shares[-1] - shares[0] for shares in curves]
        statement = f"blocking grows by more than {100 * GROWTH:g} point while labels are learned"
        cases = f"{plural(len(grown), 'seed')} of CE, first to last epoch"
        yield _Claim(statement, f"{points(fmean(grown))} points", _ends(measure(grown)), cases, judge_growth(grown))
    blocked = [cell.final.conditional_loss_blocked for cell in cells if cell.final]
    left = [value for value in blocked if value is not None]
    if blocked:
        statement = "more knowledge remains where imitation is blocked than two seeds differ by"
        found = f"{nats(fmean(left))} nats of conditional KL" if left else "nothing is blocked"
        cases = f"{plural(len(left), 'seed')} of CE with blocked test samples"
        yield _Claim(statement, found, "none", cases, judge_remaining(left, None))


def _ends(found: Measured) -> str:
    interval = found.interval()
    return "none" if interval is None else " to ".join(map(points, interval))


def _network(records: ReportRecords) -> Iterator[_Claim]:
    if records.certificates is not None:
        states = records.certificates.states
        pairs, positive = sum(len(state.batches) for state in states), sum(state.positive_pairs for state in states)
        statement = "the gain survives backpropagation: an iteration of TPKD learns more than compensation alone"
        verdict = SUPPORTED if positive == pairs else NOT_SUPPORTED
        yield _Claim(statement, f"{positive} of {pairs} pairs", "none", f"{pairs} pairs of iterations", verdict)
    if records.continuation is not None:
        for other, said in (("ce", "CE"), ("compensation-only", "compensation only")):
            yield _continued(records.continuation, other, said)


def _continued(record: ContinuationRecord, other: str, said: str) -> _Claim:
    conditional, label = (record.differences(other, name) for name in ("conditional_loss", "label_loss"))
    statement = f"the gain accumulates: TPKD's conditional KL ends below that of {said}, and its label loss not above"
    found = f"{signed_nats(fmean(conditional))} and {signed_nats(fmean(label))} nats"
    repeats = plural(len(conditional), "repeat")
    cases = f"{repeats} of {record.iterations} iterations, {len(record.observation_ids):,} samples"
    return _Claim(statement, found, "none", cases, judge_continuation(conditional, label))
