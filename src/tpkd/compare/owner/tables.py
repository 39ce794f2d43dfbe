"""The owner's tables: methods with both intervals, confidence, classes, confusions, and what networks cost."""

from collections.abc import Iterator

from tpkd.compare.owner.record import AnswerSummary, Assessment, Estimate
from tpkd.compare.record import ReportRecords
from tpkd.report.tables import Column, Content, Number, Row, Table, Traced

MAIN = ("ce", "kd", "tpkd")
TEACHER = "Teacher"
MOST_CLASSES = 100
"""Rows of the table of classes on the page; its files have all."""


def methods_table(records: ReportRecords) -> Table | None:
    """Teacher, start and every method with its interval over seeds and over test samples; None without a finished cell.

    Differences from the reference are paired by seed and by sample; the wider of their two intervals decides.
    """
    found = records.assessment
    if found is None or not found.methods:
        return None
    seen = Traced(records).assessment
    rows = _Rows(records, found)
    content: list[Row] = []
    if found.teacher is not None:
        part = seen.teacher
        content.append(rows.row(TEACHER, found.teacher.accuracy, part.accuracy, found.teacher.minus_reference, part))
    if found.start is not None:
        content.append(rows.row("Student before training", found.start, seen.start, None, None))
    first = len(content)
    for method, part in zip(found.methods, seen.methods, strict=True):
        title, validation = records.methods.title(method.objective), rows.validation.get(method.objective, "")
        content.append(rows.row(title, method.accuracy, part.accuracy, method.minus_reference, part, validation))
    best = next((place for place, method in enumerate(found.methods) if method.objective == found.best), None)
    one_set = len({method.seeds for method in records.comparison.methods if method.seeds}) == 1
    emphasis = frozenset({first + best}) if best is not None and len(found.methods) > 1 and one_set else frozenset()
    return Table("methods", rows.caption(), rows.columns(), tuple(content), rows.notes(bool(emphasis)), emphasis)


class _Rows:
    """Rows with the columns for which there are data."""

    def __init__(self, records: ReportRecords, found: Assessment) -> None:
        accuracies = [method.accuracy for method in found.methods]
        self.level = f"{100 * found.confidence_level:g} %"
        self.over_seeds = any(each.seed_low is not None for each in accuracies)
        self.over_samples = any(each.sample_low is not None for each in accuracies)
        self.kept_for_all = all(each.sample_low is not None for each in accuracies)
        summaries = zip(records.comparison.methods, Traced(records).comparison.methods, strict=True)
        self.validation: dict[str, Content] = {
            method.objective: part.validation_mean("percent")
            for method, part in summaries
            if method.validation_mean is not None
        }
        self.reference = None
        if found.reference is not None and (found.teacher is not None or len(found.methods) > 1):
            self.reference = records.methods.title(found.reference)

    def columns(self) -> tuple[Column, ...]:
        intervals = [
            Column(heading)
            for heading, shown in (("over seeds", self.over_seeds), ("over test samples", self.over_samples))
            if shown
        ]
        validation = [Column("validation (%)")] if self.validation else []
        columns = [Column("method", text=True), Column("accuracy (%)"), *intervals, *validation]
        if self.reference is not None:
            columns += [Column(f"minus {self.reference} (points)"), *intervals, Column("verdict", text=True)]
        return tuple(columns)

    def row(
        self,
        title: str,
        estimate: Estimate,
        part: Traced,
        difference: Estimate | None,
        owner: Traced | None,
        validation: Content = "",
    ) -> Row:
        cells: list[Content] = [title, part.mean("percent"), *self._intervals(estimate, part, "percent")]
        if self.validation:
            cells.append(validation)
        if self.reference is not None:
            if difference is None or owner is None:
                cells += [""] * (2 + self.over_seeds + self.over_samples)
            else:
                against = owner.minus_reference
                cells += [against.mean("points"), *self._intervals(difference, against, "points")]
                cells.append(verdict(difference, self.reference))
        return tuple(cells)

    def _intervals(self, estimate: Estimate, part: Traced, kind: str) -> Iterator[Content]:
        if self.over_seeds:
            yield "" if estimate.seed_low is None else interval(part.seed_low(kind), part.seed_high(kind))
        if self.over_samples:
            yield "" if estimate.sample_low is None else interval(part.sample_low(kind), part.sample_high(kind))

    def caption(self) -> str:
        said = f"Test accuracy: mean over seeds, with {self.level} intervals"
        if self.reference is None:
            return f"{said}."
        paired = f"{said}. Differences from {self.reference} are paired by seed"
        if not self.over_samples:
            return f"{paired}; the interval over seeds decides, which says nothing about other test samples."
        return f"{paired} and by test sample; the wider interval decides."

    def notes(self, bold: bool) -> tuple[str, ...]:
        notes = []
        if not self.over_seeds:
            notes.append("One seed per method: how far another run would be from these is not known.")
        if not self.kept_for_all:
            notes.append(
                "No interval over test samples where the answers were not kept: those cells ran before `tpkd compare` "
                "kept them, and their test logits are not here."
            )
        if bold:
            notes.append("In bold: the largest mean.")
        return tuple(notes)


def interval(low: Number, high: Number) -> Content:
    """Both ends of an interval, as a cell."""
    return ("[", low, ", ", high, "]")


def verdict(difference: Estimate, reference: str) -> str:
    """What a difference says: on which side of the reference, or nothing yet.

    Example:
        >>> verdict(Estimate(0.5, 3, 0.25, 0.75, 0.125, 1.0), "CE")
        'above CE'
        >>> verdict(Estimate(0.5, 1, None, None, 0.125, 1.0), "CE")
        'one seed'
    """
    if difference.seed_low is None:
        return "one seed"
    return {1: f"above {reference}", -1: f"below {reference}", 0: "undecided"}[difference.side]


SCORES = {
    "log_loss": ("log-loss (nats)", "nats"),
    "brier_score": ("Brier score", "decimal"),
    "calibration_error": ("calibration error", "share"),
    "confidence_gap": ("confidence minus accuracy (points)", "points"),
    "risk_coverage_area": ("risk–coverage area", "decimal"),
}
"""Columns of the confidence table: field of `AnswerSummary` -> heading and format."""


def confidence_table(records: ReportRecords) -> Table | None:
    """Scores of the predicted probabilities; None where no answers were kept."""
    rows = tuple(
        (title, *(getattr(part, name)(kind) for name, (_, kind) in SCORES.items()))
        for title, _, part in answered(records)
    )
    columns = (Column("method", text=True), *(Column(heading) for heading, _ in SCORES.values()))
    caption = (
        "Predicted probabilities on the test split, means over samples and seeds; lower is better, and for confidence "
        "minus accuracy closer to zero. Calibration error: 15 bins of equal width."
    )
    return Table("confidence", caption, columns, rows) if rows else None


def answered(records: ReportRecords) -> Iterator[tuple[str, AnswerSummary, Traced]]:
    """Teacher and methods whose answers were kept: title and summary, plain and traced."""
    found, seen = records.assessment, Traced(records).assessment
    if found is None:
        return
    if found.teacher is not None and found.teacher.answers is not None:
        yield TEACHER, found.teacher.answers, seen.teacher.answers
    for method, part in zip(found.methods, seen.methods, strict=True):
        if method.answers is not None:
            yield records.methods.title(method.objective), method.answers, part.answers


def chosen(found: Assessment) -> list[str]:
    """Methods shown where there is no room for all: the best, the reference, CE, KD and TPKD; in table order."""
    wanted = {found.best, found.reference, *MAIN}
    return [each.objective for each in found.methods if each.answers is not None and each.objective in wanted]


def classes_table(records: ReportRecords, most: int | None = None) -> Table | None:
    """Accuracy by class, weakest of the best method first; None where no answers were kept.

    Args:
        records: the comparison.
        most: number of rows: the weakest and the strongest classes. By default all.
    """
    found, seen = records.assessment, Traced(records).assessment
    if found is None or not (names := chosen(found)):
        return None
    places = {method.objective: place for place, method in enumerate(found.methods)}
    shown = order = ranked_classes(found)
    notes = []
    if most is not None and len(order) > most:
        strongest = most // 4
        shown = [*order[: most - strongest], *order[len(order) - strongest :]]
        notes.append(
            f"The {most - strongest} weakest and the {strongest} strongest of {len(order)} classes; "
            "`tables/classes.csv` has them all."
        )
    teacher = found.teacher is not None and found.teacher.answers is not None
    rows: list[Row] = []
    for index in shown:
        cells: list[Content] = [found.classes[index].name, seen.classes[index].examples("count")]
        if teacher:
            cells.append(seen.teacher.answers.class_accuracy[index]("percent"))
        cells += [seen.methods[places[name]].answers.class_accuracy[index]("percent") for name in names]
        rows.append(tuple(cells))
    titles = [*([TEACHER] if teacher else []), *map(records.methods.title, names)]
    columns = (Column("class", text=True), Column("test samples"), *(Column(f"{title} (%)") for title in titles))
    weakest = records.methods.title(_leader(found, names))
    caption = f"Accuracy by class, mean over seeds; weakest for {weakest} first."
    return Table("classes", caption, columns, tuple(rows), tuple(notes))


def _leader(found: Assessment, names: list[str]) -> str:
    """The method whose classes are ranked: the best, if its answers were kept."""
    return found.best if found.best in names and found.best is not None else names[0]


def ranked_classes(found: Assessment) -> list[int]:
    """Classes with test samples, from the weakest to the strongest of the best method."""
    names = chosen(found)
    method = found.find(_leader(found, names)) if names else None
    if method is None or method.answers is None:
        return []
    rates = {index: rate for index, rate in enumerate(method.answers.class_accuracy) if rate is not None}
    return sorted(rates, key=lambda index: (rates[index], index))


def confusions_table(records: ReportRecords) -> Table | None:
    """The most frequent wrong answers of the best method; None where no answers were kept or all are right."""
    found, seen = records.assessment, Traced(records).assessment
    if found is None or not found.confusions:
        return None
    first = found.confusions[0]
    names = [name for name in chosen(found) if name in first.counts and name in (found.best, found.reference)]
    rows: list[Row] = []
    for confusion, part in zip(found.confusions, seen.confusions, strict=True):
        cells: list[Content] = [found.classes[confusion.label].name, found.classes[confusion.answer].name]
        cells.append(seen.classes[confusion.label].examples("count"))
        if first.teacher is not None:
            cells.append(part.teacher("tally"))
        cells += [part.counts[name]("tally") for name in names]
        rows.append(tuple(cells))
    titles = [*([TEACHER] if first.teacher is not None else []), *map(records.methods.title, names)]
    columns = (Column("label", text=True), Column("answer", text=True), Column("samples"))
    best = records.methods.title(found.best or "")
    caption = f"The most frequent wrong answers of {best}: on how many of the label's samples, mean over seeds."
    return Table("confusions", caption, (*columns, *map(Column, titles)), tuple(rows))


def networks_table(records: ReportRecords) -> Table | None:
    """Size and speed of student and teacher; None where they were not measured."""
    found, seen = records.networks, Traced(records).networks
    if found is None:
        return None
    networks = [("Student", found.student, seen.student)]
    if found.teacher is not None:
        networks.append(("Teacher", found.teacher, seen.teacher))
    sizes = [each.batch_size for each in found.student.latencies]
    rows: tuple[Row, ...] = tuple(
        (
            name,
            network.model,
            part.parameters("count"),
            part.bytes("megabytes"),
            *(each.milliseconds("milliseconds") for each in part.latencies),
        )
        for name, network, part in networks
    )
    columns = (
        Column("network", text=True),
        Column("model", text=True),
        Column("parameters"),
        Column("megabytes"),
        *(Column(f"ms per sample, batch of {size}") for size in sizes),
    )
    if not sizes:
        return Table("networks", "Size of the student: all numbers of its file of weights.", columns, rows)
    threads = f"{found.threads} thread{'' if found.threads == 1 else 's'}"
    caption = (
        f"Size and speed: median time of a forward pass on {found.device} with {threads}, {found.precision}, inputs "
        "prepared, measured on the machine that compared them, which may have done other work."
    )
    return Table("networks", caption, columns, rows)
