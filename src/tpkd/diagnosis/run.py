"""`tpkd diagnose`: what can this teacher still teach these students, and at what price, from files of any length."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from tpkd.arrays import ArrayFile
from tpkd.competence.counts import AnswerCounts
from tpkd.diagnosis.inputs import DiagnosisInputs, read_ids
from tpkd.diagnosis.record import (
    ClassPair,
    ClassState,
    Competitor,
    ConfidenceBin,
    Decomposition,
    DiagnosisRecord,
    ExampleState,
    FrontierCurve,
    Histogram,
    StudentDiagnosis,
)
from tpkd.diagnosis.totals import (
    CONFIDENCE_EDGES,
    PAIR_TABLE_CLASSES,
    ClassMeans,
    ConfidenceBins,
    CostliestExamples,
    GrowingHistogram,
    KeptRows,
    PairTable,
    UniformSample,
)
from tpkd.errors import InputError
from tpkd.files import publish
from tpkd.geometry import retention_bound, split
from tpkd.theory import diagnose
from tpkd.theory.diagnosis import diagnose_pair
from tpkd.theory.frontier import frontier
from tpkd.theory.pair import split_pair

BLOCK_ELEMENTS = 2**18
"""Logits in a block: two megabytes in float64, small enough for the cache and large enough to hide what calls cost."""

EQUAL_BELOW = 1e-12
"""Nats of teacher KL that are rounding: logits in single precision that differ by their last digit are 1e-14 apart."""

FRONTIER_SAMPLE = 2048
FRONTIER_STEPS = 32
HALF_BUDGET_TOLERANCE = 1e-8
HISTOGRAM_BINS = 48
HISTOGRAM_SHARE = 0.995
LARGEST_PAIRS = 50
COSTLIEST_EXAMPLES = 20
TOP_COMPETITORS = 3


def diagnose_files(
    inputs: DiagnosisInputs,
    *,
    block_elements: int = BLOCK_ELEMENTS,
    advance: Callable[[ArrayFile, int], None] = lambda student, rows: None,
) -> DiagnosisRecord:
    """Diagnose every student in one pass over its file and the teacher's, in float64, once every value was looked at.

    Args:
        inputs: what `open_inputs` opened.
        block_elements: logits in a block; the result does not depend on it beyond rounding.
        advance: called with the student and a number of rows whenever they are done.
    """
    rows = max(1, block_elements // inputs.num_classes)
    inputs.check_values(rows)
    students = []
    for student in inputs.students:
        totals = _Totals(inputs.examples, inputs.num_classes)
        for start, z, zt, y in inputs.blocks(student, rows):
            totals.add(start, z, zt, y)
            advance(student, len(y))
        students.append(totals.finish(str(student.path), inputs))
    names = inputs.known_class_names
    return DiagnosisRecord(str(inputs.teacher.path), str(inputs.labels.path), tuple(students), names)


def check_outputs(outputs: list[Path], inputs: list[Path]) -> None:
    """Refuse, before any work, an output that cannot be written or would replace an input."""
    for output in outputs:
        if output.is_dir() or not output.parent.is_dir():
            found = "a directory" if output.is_dir() else f"no directory {output.parent}"
            raise InputError(f"{output}: expected a file to write in an existing directory, found {found}")
        if (output.exists() and not output.is_file()) or output.is_symlink():
            raise InputError(f"{output}: expected a plain file to write or replace, found a link or a device")
        if output.resolve() in {path.resolve() for path in inputs}:
            raise InputError(f"{output}: expected a new file, found one of the inputs")
    if len({output.resolve() for output in outputs}) < len(outputs):
        raise InputError(f"{outputs[0]}: expected different files for different outputs, found it twice")


def write_text(path: Path, text: str) -> None:
    """Publish a text; a write error is reported in one line."""
    try:
        with publish(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


class _Totals:
    """Everything that is kept of one student."""

    def __init__(self, examples: int, num_classes: int) -> None:
        self.means = ClassMeans(num_classes)
        self.conditional_loss, self.transfer_cost = GrowingHistogram(), GrowingHistogram()
        self.confidence, self.answers = ConfidenceBins(), AnswerCounts(num_classes)
        self.pairs = PairTable(num_classes) if num_classes <= PAIR_TABLE_CLASSES else None
        self.costliest = CostliestExamples(COSTLIEST_EXAMPLES, num_classes)
        # Bounded in elements too: 32 MB for either model, however many classes.
        self.sample = UniformSample(examples, min(FRONTIER_SAMPLE, 2**22 // num_classes), num_classes)

    def add(self, start: int, student: Tensor, teacher: Tensor, labels: Tensor) -> None:
        pair = split_pair(student, teacher, labels)
        state = diagnose_pair(pair)
        self.means.add(state, pair)
        self.conditional_loss.add(state.conditional_loss)
        self.transfer_cost.add(state.transfer_cost)
        self.confidence.add(state)
        self.answers.add(teacher, labels, student)
        if self.pairs is not None:
            self.pairs.add(pair)
        self.costliest.add(start, state.transfer_cost, student, teacher, labels)
        self.sample.add(start, student, teacher, labels)

    def finish(self, file: str, inputs: DiagnosisInputs) -> StudentDiagnosis:
        means, names = self.means, inputs.class_names
        over_all, over_blocked = means.over_all(), means.over_blocked()
        decomposition = _decomposition(over_all.pop("confidence_part"), over_all.pop("conditional_part"))
        return StudentDiagnosis(
            file=file,
            examples=inputs.examples,
            num_classes=inputs.num_classes,
            blocked_examples=means.blocked_examples,
            blocked_share=over_all["blocked"],
            blocked={name: over_blocked[name] for name in over_all if name != "blocked"},
            all=over_all,
            retention_bound=retention_bound(inputs.num_classes),
            decomposition=decomposition,
            conditional_loss=_histogram(self.conditional_loss),
            transfer_cost=_histogram(self.transfer_cost),
            confidence_bins=_confidence_bins(self.confidence),
            frontier=_frontier(self.sample.kept),
            classes=tuple(_class_state(means, index, name) for index, name in enumerate(names)),
            pairs=None if self.pairs is None else _class_pairs(self.pairs, means, names),
            costliest=_examples(self.costliest.kept, names, inputs.ids),
            competence=self.answers.finish(),
        )


def _decomposition(confidence: float, conditional: float) -> Decomposition:
    total = confidence + conditional
    return Decomposition(confidence, conditional, conditional / total if total > EQUAL_BELOW else None)


def _histogram(histogram: GrowingHistogram) -> Histogram:
    width, counts = histogram.coarse(HISTOGRAM_BINS, HISTOGRAM_SHARE)
    return Histogram(width, tuple(counts), histogram.largest)


def _confidence_bins(bins: ConfidenceBins) -> tuple[ConfidenceBin, ...]:
    edges = pairwise(CONFIDENCE_EDGES)
    counts = zip(bins.examples.tolist(), bins.teacher_examples.tolist(), bins.blocked.tolist(), strict=True)
    return tuple(
        ConfidenceBin(low, high, examples, teacher, blocked, blocked / examples if examples else None)
        for (low, high), (examples, teacher, blocked) in zip(edges, counts, strict=True)
    )


def _frontier(sample: KeptRows) -> FrontierCurve:
    """The mean V(B) up to where hardly anything is left: a first look finds that budget, a second one draws it."""
    costs = diagnose(sample.student, sample.teacher, sample.labels).transfer_cost
    look = _frontier_curve(sample, costs.quantile(0.99).item())
    ends = (budget for budget, value in zip(look.budgets, look.values, strict=True) if value <= 0.01 * look.values[0])
    curve = _frontier_curve(sample, next(ends, look.budgets[-1]))
    return replace(curve, half_budget=_half_budget(sample, curve, costs.amax().item()))


def _frontier_curve(sample: KeptRows, largest_budget: float) -> FrontierCurve:
    step = _round_step(largest_budget / FRONTIER_STEPS)
    budgets = [round(step * index, 12) for index in range(FRONTIER_STEPS + 1)]
    return FrontierCurve(len(sample.labels), tuple(budgets), tuple(_mean_left(sample, budgets)))


def _half_budget(sample: KeptRows, curve: FrontierCurve, largest_cost: float) -> float | None:
    """The budget at which half of the mean V(0) is left, by bisection: V falls, and is zero at the largest cost."""
    start = curve.values[0]
    if start <= EQUAL_BELOW or not math.isfinite(start + largest_cost):
        return None
    points = [*zip(curve.budgets, curve.values, strict=True), (largest_cost, 0.0)]
    low = max(budget for budget, value in points if value > start / 2)
    high = min(budget for budget, value in points if value <= start / 2)
    while high - low > HALF_BUDGET_TOLERANCE * high:
        middle = (low + high) / 2
        (left,) = _mean_left(sample, [middle])
        low, high = (low, middle) if left <= start / 2 else (middle, high)
    return high


def _mean_left(sample: KeptRows, budgets: Sequence[float]) -> list[float]:
    """The mean V(B) of a sample at each budget."""
    grid = torch.tensor(budgets, dtype=torch.float64).unsqueeze(-1)
    totals = torch.zeros(len(budgets), dtype=torch.float64)
    # In chunks of rows: the budget grid is a leading axis, which multiplies the memory of a chunk.
    rows = max(1, 2**20 // (len(budgets) * sample.student.shape[-1]))
    for start in range(0, len(sample.labels), rows):
        chunk = slice(start, start + rows)
        totals += frontier(sample.student[chunk], sample.teacher[chunk], sample.labels[chunk], grid).value.sum(-1)
    return (totals / len(sample.labels)).tolist()


def _round_step(smallest: float) -> float:
    """The next of ..., 0.1, 0.2, 0.5, 1, 2, 5, ...; 1/32 where nothing costs anything."""
    if smallest <= 0:
        return 1 / FRONTIER_STEPS
    power = 10.0 ** math.floor(math.log10(smallest))
    return next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= smallest)


def _class_state(means: ClassMeans, index: int, name: str) -> ClassState:
    values = means.of_class(index)
    shown = {key: values[key] for key in ("confidence", "teacher_confidence", "conditional_loss", "transfer_cost")}
    return ClassState(index, name, int(means.counts[index]), blocked_share=values["blocked"], **shown)


def _class_pairs(table: PairTable, means: ClassMeans, names: tuple[str, ...]) -> tuple[ClassPair, ...]:
    total = int(means.counts.sum())
    pairs = []
    for label, competitor, left, teacher, student in table.largest(LARGEST_PAIRS):
        count = int(means.counts[label])
        pairs.append(
            ClassPair(
                names[label], names[competitor], count, left / total, left / count, teacher / count, student / count
            )
        )
    return tuple(pairs)


def _examples(kept: KeptRows, names: tuple[str, ...], ids: Path | None) -> tuple[ExampleState, ...]:
    state = diagnose(kept.student, kept.teacher, kept.labels)
    rows, labels = kept.rows.tolist(), kept.labels.tolist()
    student, teacher = (_competitors(logits, kept.labels, names) for logits in (kept.student, kept.teacher))
    named = read_ids(ids, rows)
    return tuple(
        ExampleState(
            row=row,
            id=named[row],
            label=names[label],
            blocked=bool(state.blocked[index]),
            confidence=state.confidence[index].item(),
            teacher_confidence=state.teacher_confidence[index].item(),
            conditional_loss=state.conditional_loss[index].item(),
            transfer_cost=state.transfer_cost[index].item(),
            student_competitors=student[index],
            teacher_competitors=teacher[index],
        )
        for index, (row, label) in enumerate(zip(rows, labels, strict=True))
    )


def _competitors(logits: Tensor, labels: Tensor, names: tuple[str, ...]) -> list[tuple[Competitor, ...]]:
    log_conditional = split(logits, labels).log_conditional
    largest = log_conditional.topk(min(TOP_COMPETITORS, log_conditional.shape[-1]))
    classes = largest.indices + (largest.indices >= labels.unsqueeze(-1))
    return [
        tuple(Competitor(names[index], probability) for index, probability in zip(row, probabilities, strict=True))
        for row, probabilities in zip(classes.tolist(), largest.values.exp().tolist(), strict=True)
    ]
