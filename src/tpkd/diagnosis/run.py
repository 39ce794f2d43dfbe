"""`tpkd diagnose`: what can this teacher still teach these students, and at what price, from files of any length."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from torch import Tensor

from tpkd.arrays import ArrayFile
from tpkd.competence.counts import AnswerCounts
from tpkd.diagnosis.block import Block, diagnose_block
from tpkd.diagnosis.examples import costliest_examples
from tpkd.diagnosis.frontier import EQUAL_BELOW, frontier_of
from tpkd.diagnosis.inputs import Checked, DiagnosisInputs, InputBlock
from tpkd.diagnosis.record import (
    ClassPair,
    ClassState,
    ConfidenceBin,
    Decomposition,
    DiagnosisRecord,
    Histogram,
    StudentDiagnosis,
    Truncation,
)
from tpkd.diagnosis.rows import diagnose_rows, takes
from tpkd.diagnosis.soft_labels import SoftLabelTotals
from tpkd.diagnosis.top_k_file import TopKFile
from tpkd.diagnosis.totals import (
    CONFIDENCE_EDGES,
    PAIR_TABLE_CLASSES,
    ClassMeans,
    ConfidenceBins,
    CostliestExamples,
    GrowingHistogram,
    PairTable,
    UniformSample,
    WithoutLabelTotals,
)
from tpkd.errors import InputError
from tpkd.files import publish
from tpkd.geometry import retention_bound
from tpkd.geometry.constants import PAPER_BETA
from tpkd.theory.truncated import BOUNDS

BLOCK_ELEMENTS = 2**18
"""Logits in a block: two megabytes in float64, small enough for the cache and large enough to hide what calls cost."""
BLOCK_ROWS = 2**15
"""Most rows in a block: torch takes one thread for as many numbers, so that no sum depends on how many there are."""

FRONTIER_SAMPLE = 2048
HISTOGRAM_BINS = 48
HISTOGRAM_SHARE = 0.995
LARGEST_PAIRS = 50
COSTLIEST_EXAMPLES = 20

RECORD_BOUNDS = BOUNDS | {
    "decomposition.confidence": "exact",
    # The teacher's doubt is known, and weighs a lower bound; x / (c + x) grows with x.
    "decomposition.conditional": "lower",
    "decomposition.conditional_share": "lower",
    "frontier.values": "lower",
    "frontier.half_budget": "completed",
    "pairs.left": "completed",
    "pairs.teacher": "completed",
    "pairs.student": "exact",
}
"""What each number of a record says about a truncated teacher: those of a diagnosis, and what is made of them."""


def diagnose_files(
    inputs: DiagnosisInputs,
    *,
    beta: float = PAPER_BETA,
    temperature: float = 1.0,
    block_elements: int = BLOCK_ELEMENTS,
    advance: Callable[[ArrayFile, int], None] = lambda student, rows: None,
) -> DiagnosisRecord:
    """Diagnose every student in one pass over its file and the teacher's, in float64, once every value was looked at.

    Args:
        inputs: what `open_inputs` opened.
        beta: of the protected step that compensation, retention and update cosine speak of.
        temperature: of the same step; nothing else depends on either.
        block_elements: logits in a block; the result does not depend on it beyond rounding.
        advance: called with the student and a number of rows whenever they are done.
    """
    rows = max(1, min(BLOCK_ROWS, block_elements // inputs.num_classes))
    checked = inputs.check_values(rows)
    students, soft_labels = [], None
    for student in inputs.students:
        totals = _Totals(inputs, checked)
        for block in inputs.blocks(student, rows, as_stored=True):
            if len(block.rows):
                totals.add(block, beta=beta, temperature=temperature)
            advance(student, block.read)
        students.append(totals.finish(str(student.path), inputs))
        soft_labels = totals.soft_labels.finish() if totals.soft_labels else None
    return DiagnosisRecord(
        str(inputs.teacher.path),
        str(inputs.labels.path),
        tuple(students),
        inputs.known_class_names,
        _truncation(inputs.teacher) if isinstance(inputs.teacher, TopKFile) else None,
        soft_labels,
        float(beta),
        float(temperature),
        checked.ignored,
        inputs.one_hot_labels,
    )


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

    def __init__(self, inputs: DiagnosisInputs, checked: Checked) -> None:
        num_classes, self.examples = inputs.num_classes, inputs.examples - checked.ignored
        self.means = ClassMeans(num_classes)
        self.conditional_loss, self.transfer_cost = GrowingHistogram(), GrowingHistogram()
        self.confidence, self.answers = ConfidenceBins(), AnswerCounts(num_classes)
        self.pairs = PairTable(num_classes) if num_classes <= PAIR_TABLE_CLASSES else None
        self.costliest = CostliestExamples(COSTLIEST_EXAMPLES)
        # Bounded in elements too: 32 MB for either model, however many classes.
        self.sample = UniformSample(checked.known_examples, min(FRONTIER_SAMPLE, 2**22 // num_classes))
        self.without_label = WithoutLabelTotals() if isinstance(inputs.teacher, TopKFile) else None
        self.soft_labels = SoftLabelTotals(num_classes) if inputs.has_soft_labels else None

    def add(self, given: InputBlock, *, beta: float, temperature: float) -> None:
        block = self._diagnose(given, beta, temperature)
        self.means.add(block)
        self.answers.add_classes(block.teacher_answers, block.classes, block.answers)
        if self.without_label is not None:
            self.without_label.add(block.state)
        if self.soft_labels is not None:
            self.soft_labels.add(block.labels)
        known = block.known
        self.conditional_loss.add(known.state.conditional_loss)
        self.transfer_cost.add(known.state.transfer_cost)
        self.confidence.add(known.state)
        self.costliest.add(known)
        self.sample.add(known)

    def _diagnose(self, given: InputBlock, beta: float, temperature: float) -> Block:
        """The block, after its examples were added to the table of class pairs."""
        rows, z, zt, y, _ = given
        if isinstance(zt, Tensor) and takes(z, zt, y, temperature=temperature):
            return diagnose_rows(rows, z, zt, y, beta=beta, tables=None if self.pairs is None else self.pairs.sums)
        zt = zt.double() if isinstance(zt, Tensor) else zt
        block = diagnose_block(rows, z.double(), zt, y, beta=beta, temperature=temperature)
        if self.pairs is not None:
            self.pairs.add(block.known)
        return block

    def finish(self, file: str, inputs: DiagnosisInputs) -> StudentDiagnosis:
        means, names = self.means, inputs.class_names
        over_all, over_blocked = means.over_all(), means.over_blocked()
        parts = [over_all.pop(f"{name}_part") for name in ("confidence", "conditional", "inside")]
        soft = self.soft_labels
        return StudentDiagnosis(
            file=file,
            examples=self.examples,
            num_classes=inputs.num_classes,
            blocked_examples=means.blocked_examples,
            blocked_share=over_all["blocked"],
            blocked={name: over_blocked[name] for name in over_all if name != "blocked"},
            all=over_all,
            retention_bound=soft.retention_bound() if soft else retention_bound(inputs.num_classes),
            decomposition=_decomposition(*parts, has_inside=soft is not None),
            conditional_loss=_histogram(self.conditional_loss),
            transfer_cost=_histogram(self.transfer_cost),
            confidence_bins=_confidence_bins(self.confidence),
            frontier=frontier_of(self.sample.kept),
            classes=tuple(_class_state(means, index, name) for index, name in enumerate(names)),
            pairs=None if self.pairs is None else _class_pairs(self.pairs, means, names),
            costliest=costliest_examples(self.costliest.kept, names, inputs.ids),
            competence=self.answers.finish(),
            bounds=None if self.without_label is None else dict(RECORD_BOUNDS),
            without_label=None if self.without_label is None else self.without_label.finish(),
        )


def _truncation(teacher: TopKFile) -> Truncation:
    return Truncation(teacher.k, str(teacher.dtype).removeprefix("torch."), teacher.has_rest)


def _decomposition(confidence: float, conditional: float, inside: float, *, has_inside: bool) -> Decomposition:
    total = confidence + conditional + inside
    share = conditional / total if total > EQUAL_BELOW else None
    return Decomposition(confidence, conditional, share, inside if has_inside else None)


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


def _class_state(means: ClassMeans, index: int, name: str) -> ClassState:
    values = means.of_class(index)
    shown = {key: values[key] for key in ("confidence", "teacher_confidence", "conditional_loss", "transfer_cost")}
    return ClassState(index, name, int(means.counts[index]), blocked_share=values["blocked"], **shown)


def _class_pairs(table: PairTable, means: ClassMeans, names: tuple[str, ...]) -> tuple[ClassPair, ...]:
    total = int(means.known_counts.sum())
    pairs = []
    for label, competitor, left, teacher, student in table.largest(LARGEST_PAIRS):
        count = int(means.known_counts[label])
        pairs.append(
            ClassPair(
                names[label], names[competitor], count, left / total, left / count, teacher / count, student / count
            )
        )
    return tuple(pairs)
