"""A comparison in plain words: what the data support, and what they do not."""

from collections.abc import Iterator

from tpkd.compare.record import ComparisonRecord, MethodSummary, PairedDifference, ReportRecords
from tpkd.compare.tables import listed_seeds
from tpkd.report.methods import Title
from tpkd.report.numbers import count, listed, nats, percent, plural, points, share


def supported(records: ReportRecords) -> list[str]:
    """Sentences that the data support for these networks and seeds."""
    return [what_ran(records.comparison), *paper_sentences(records)]


def paper_sentences(records: ReportRecords) -> list[str]:
    """Sentences about what the paper asks: TPKD and its parts, what is left to learn, and the mechanism."""
    record, title = records.comparison, records.methods.title
    sentences = [*_against(record, title), *_ablation(record, title), *_final(record, title)]
    return [*sentences, *_identical(record, title), *_mechanism(records)]


def not_supported(records: ReportRecords, *, paper: bool = True) -> list[str]:
    """Conclusions a reader might draw that the data do not support; about the paper's numbers only if asked."""
    record = records.comparison
    about_paper = _paper(record) if paper else ()
    return [*_selected(record), *_incomplete(record), *_uneven(record), *about_paper, *_limits(record)]


def what_ran(record: ComparisonRecord) -> str:
    """What was compared, and where accuracies come from."""
    count_of = plural(len(record.objectives), "objective")
    counts = sorted({len(method.asked_seeds) for method in record.methods})
    least, most = counts[0], counts[-1]
    seeds = f"{'' if least == most else f'{least} to '}{plural(most, 'seed')}"
    if record.data is None or record.start is None:
        fixed = "" if record.stamp else ", fixed in advance"
        return f"{count_of} with {seeds}; the accuracy is that of {_which_epoch(record)}{fixed}."
    teacher = record.teacher.accuracy if record.teacher else None
    taught = "" if teacher is None else f" and learn from one teacher ({percent(teacher)} %)"
    same = "for each seed, all start from the same student" if record.starts else "all start from the same student"
    mean = "on average " if record.starts else ""
    return (
        f"{count_of} with {seeds} each: {same} ({mean}{percent(record.start.accuracy)} % before the "
        f"first step){taught}. Accuracy is that of {_which_epoch(record)} on {count(record.data.test_samples)} test "
        "samples; no epoch was chosen by looking at them."
    )


def _which_epoch(record: ComparisonRecord) -> str:
    return "the epoch with the best validation accuracy" if record.stamp else "the last epoch"


def _against(record: ComparisonRecord, title: Title) -> Iterator[str]:
    method = find(record, "tpkd")
    if method is None or method.mean is None:
        return
    for pair in method.versus:
        yield difference_sentence(method, pair, record.confidence_level, title)


def difference_sentence(method: MethodSummary, pair: PairedDifference, level: float, title: Title) -> str:
    """The difference between two objectives over seeds, and whether it is decisive."""
    name, other = title(method.objective), title(pair.reference)
    said = f"{name} ends at {percent(method.mean)} % on average, {points(pair.mean)} points from {other} by seed"
    if pair.seeds != method.seeds:
        said += f" (over {', '.join(map(str, pair.seeds))}, which both have)"
    if pair.low is None or pair.high is None:
        return f"{said}; one seed alone does not say how far that is chance."
    interval = f"({100 * level:g} % interval {points(pair.low)} to {points(pair.high)})"
    if pair.low > 0 or pair.high < 0:
        better = "above" if pair.mean > 0 else "below"
        return f"{said} {interval}: with this student, teacher and data, {name} is {better} {other}."
    return f"{said} {interval}: the interval contains zero, so these seeds do not decide between the two."


def _ablation(record: ComparisonRecord, title: Title) -> Iterator[str]:
    full = find(record, "tpkd")
    parts = [find(record, name) for name in ("tpkd-no-ce", "tpkd-no-projection", "safe-full-kl")]
    found = [method for method in parts if method is not None and method.mean is not None]
    if full is None or full.mean is None or not found:
        return
    if all(method.seeds == full.seeds for method in found):
        said = ", ".join(f"{title(method.objective)} {percent(method.mean)} %" for method in found)
        yield f"Against TPKD's {percent(full.mean)} %, its parts alone reach: {said}."
        return
    pairs = [(method, pair) for method in found for pair in method.versus if pair.reference == "tpkd"]
    said = ", ".join(f"{title(method.objective)} {points(pair.mean)}" for method, pair in pairs)
    if said:
        yield f"By the seeds that both have, its parts alone end from TPKD, in points: {said}."


def _final(record: ComparisonRecord, title: Title) -> Iterator[str]:
    found = (find(record, name) for name in ("ce", "kd", "tpkd"))
    left = [(method, method.final.get("conditional_loss")) for method in found if method is not None]
    said = ", ".join(
        f"{nats(value)} nats after {title(method.objective)}" for method, value in left if value is not None
    )
    if said:
        yield f"What the final students have left to learn about incorrect classes, on the test split: {said}."


def _identical(record: ComparisonRecord, title: Title) -> Iterator[str]:
    groups: dict[tuple[str, ...], list[int]] = {}
    for group in record.identical:
        groups.setdefault(group.objectives, []).append(group.seed)
    for objectives, seeds in groups.items():
        names = listed(map(title, objectives))
        always = [
            objective
            for objective in objectives
            if all(
                cell.selection_rates and min(cell.selection_rates) == 1.0
                for cell in record.cells
                if cell.objective == objective and cell.seed in seeds
            )
        ]
        said = f"{names} end with elementwise identical test logits ({listed_seeds(seeds)})."
        if always:
            said += f" {listed(map(title, always))} took the teacher's target for every sample of every epoch."
        yield said


def _mechanism(records: ReportRecords) -> Iterator[str]:
    if records.blocking is not None:
        blocking = records.blocking.splits[0].states
        first, last = blocking[0], blocking[-1]
        left = ""
        if last.conditional_loss is not None:
            left = f"; there {nats(last.conditional_loss)} nats of conditional knowledge are still to be had"
        yield (
            f"Label training alone blocks full imitation on {share(first.blocked_share)} of the pairs at "
            f"{first.state.name} and {share(last.blocked_share)} at {last.state.name}{left}."
        )
    if records.exact_head is not None:
        states = records.exact_head.states
        examples = sum(state.examples for state in states)
        kept, lost = (sum(state.lost_examples[name] for state in states) for name in ("tpkd", "tpkd-no-projection"))
        yield (
            f"In exact steps of the head, TPKD lost a margin of the CE step on {count(kept)} of {count(examples)} "
            f"examples; without projection {count(lost)} lost at least one."
        )
    if records.continuation is not None:
        record = records.continuation
        yield (
            f"Over {record.iterations} further iterations from {record.state.name}, TPKD takes conditional KL from "
            f"{nats(record.start)} to {nats(record.tpkd_end)} nats, {record.tpkd_minus_ce:+.3f} from CE and "
            f"{record.tpkd_minus_compensation:+.3f} from compensation only."
        )


def _selected(record: ComparisonRecord) -> Iterator[str]:
    if record.stamp:
        yield (
            f"{record.stamp} The best of several epochs looks better on the validation part than it is: the accuracy "
            "there is not an estimate for new data, that of the test split is."
        )


def _incomplete(record: ComparisonRecord) -> Iterator[str]:
    left = [cell for cell in record.cells if cell.status != "finished"]
    if left:
        named = ", ".join(f"{cell.name} ({cell.status})" for cell in left[:6])
        more = f" and {len(left) - 6} more" if len(left) > 6 else ""
        yield (
            f"The grid is not complete: {named}{more}. Rows with missing seeds say so and are not comparable with the "
            "others."
        )


def _uneven(record: ComparisonRecord) -> Iterator[str]:
    if len({method.asked_seeds for method in record.methods}) > 1:
        yield (
            "Objectives have different seeds, so their means are not over the same runs: compare them by their paired "
            "differences, which are over the seeds that both have."
        )


def _paper(record: ComparisonRecord) -> Iterator[str]:
    if record.paper.differences:
        shown = "; ".join(record.paper.differences[:4])
        more = f"; and {len(record.paper.differences) - 4} more" if len(record.paper.differences) > 4 else ""
        yield (
            "This is not the paper's protocol, so the paper's numbers are not shown and nothing here confirms or "
            f"contradicts them ({shown}{more})."
        )


def _limits(record: ComparisonRecord) -> Iterator[str]:
    changed, same = "the order of samples and views", "the student's start, the teacher and the split are"
    if record.starts:
        changed, same = "training samples, start, their order and views", "the teacher and the test samples are"
    yield (
        f"One data set and one pair of networks: other pairs may behave otherwise. A seed changes {changed}, dropout "
        f"and the objective's own networks; {same} the same for all, so an interval over seeds does not contain what "
        "they would change."
    )
    pairs = [pair for method in record.methods for pair in method.versus]
    intervals = sum(pair.low is not None for pair in pairs)
    chance = f"Each of the {intervals} intervals holds for itself; among so many, some miss zero by chance. "
    if len(pairs) > 1:
        yield (
            f"{chance if intervals > 1 else ''}Methods have the settings of their sources and share one optimiser; how "
            "its settings were found is not in the records, and others might order the methods otherwise."
        )


def find(record: ComparisonRecord, objective: str) -> MethodSummary | None:
    """The summary of an objective; None if it is not in the grid."""
    return next((method for method in record.methods if method.objective == objective), None)
