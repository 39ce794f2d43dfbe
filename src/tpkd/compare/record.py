"""Results of a comparison of objectives over seeds: every cell of the grid, and the summaries computed from them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpkd.compare.owner.record import Assessment, NetworksRecord
from tpkd.diagnosis.record import DiagnosisRecord
from tpkd.figures.record import IllustrationsRecord
from tpkd.mechanism.record import BlockingRecord, CertificatesRecord, ContinuationRecord, ExactHeadRecord, StudyRecord
from tpkd.record import Record, added
from tpkd.report.methods import Catalogue

if TYPE_CHECKING:  # its records are made of ours
    from tpkd.compare.sweep_record import SweepRecord

SELECTED = "Students were selected by validation accuracy, not taken after the last epoch."
"""The stamp of a comparison whose students were chosen."""


@dataclass(frozen=True)
class CellCurves:
    """Means over the monitored training batches of each epoch of a run."""

    epochs: tuple[int, ...]
    label_loss: tuple[float, ...]
    conditional_loss: tuple[float, ...]
    blocked_share: tuple[float, ...]


@dataclass(frozen=True)
class CellProgress:
    """Loss and accuracy of a run as its epochs end."""

    epochs: tuple[int, ...]
    training_loss: tuple[float, ...]
    """Mean over the steps of an epoch; what it measures is the objective's own."""
    evaluated_epochs: tuple[int, ...]
    accuracy: tuple[float, ...]
    """On the test split, after those epochs."""
    validated_epochs: tuple[int, ...] = added(())
    validation_accuracy: tuple[float, ...] = added(())
    """On the validation part, where there is one."""


@dataclass(frozen=True)
class FinalState:
    """The final student of a run compared with the teacher on the test split."""

    blocked_examples: int
    blocked_share: float
    conditional_loss: float
    conditional_loss_blocked: float | None
    """None if no example is blocked."""
    transfer_cost: float
    imitation_loss: float
    label_loss: float


@dataclass(frozen=True)
class Cell:
    """One objective with one seed."""

    objective: str
    seed: int
    directory: str
    """The run directory, relative to the record."""
    status: str
    """`finished`, `failed` or `missing`."""
    problem: str | None
    """The reason for a failure, in one line."""
    accuracy: float | None = None
    """Test accuracy of the run's student, in [0, 1]; None, like everything below, unless finished."""
    label_loss: float | None = None
    steps: int | None = None
    samples: int | None = None
    skipped_steps: int | None = None
    seconds: float | None = None
    student_fingerprint: str | None = None
    logits_sha256: str | None = None
    """SHA-256 of the file with the test logits."""
    selection_rates: tuple[float, ...] | None = None
    """Share of samples whose target was the teacher's, per epoch; None for objectives that do not select."""
    curves: CellCurves | None = None
    final: FinalState | None = None
    progress: CellProgress | None = added(None)  # noqa: RUF009
    validation_accuracy: float | None = added(None)
    """Of the same student on the validation part; None, like the next two, where there is none."""
    validation_label_loss: float | None = added(None)
    selected_epoch: int | None = added(None)
    """The epoch of the student, where it was selected by validation."""

    @property
    def name(self) -> str:
        """Its name in messages and file names."""
        return f"{self.objective}-{self.seed}"


@dataclass(frozen=True)
class PairedDifference:
    """Accuracy minus a reference's accuracy with the same seed, over the seeds both have finished."""

    reference: str
    seeds: tuple[int, ...]
    differences: tuple[float, ...]
    mean: float
    low: float | None
    """The t-interval of the mean; None with fewer than two seeds."""
    high: float | None


@dataclass(frozen=True)
class MethodSummary:
    """One objective over its seeds."""

    objective: str
    seeds: tuple[int, ...]
    """Seeds that finished."""
    missing_seeds: tuple[int, ...]
    """Requested seeds that did not finish."""
    accuracies: tuple[float, ...]
    mean: float | None
    """None where no seed finished."""
    standard_deviation: float | None
    """Sample standard deviation (n - 1 in the denominator); None with fewer than two seeds."""
    low: float | None
    """The t-interval of the mean; None with fewer than two seeds."""
    high: float | None
    versus: tuple[PairedDifference, ...]
    seconds: float | None
    """Mean wall-clock time of a run."""
    final: dict[str, float | None]
    """Means over seeds of the fields of `FinalState`; empty without a teacher."""
    validation_mean: float | None = added(None)
    """Of the accuracy on the validation part; None where there is none."""
    validation_standard_deviation: float | None = added(None)

    @property
    def asked_seeds(self) -> tuple[int, ...]:
        """All requested seeds, finished or not."""
        return tuple(sorted((*self.seeds, *self.missing_seeds)))


@dataclass(frozen=True)
class MethodSettings:
    """Resolved settings of one objective."""

    objective: str
    settings: dict[str, Any]
    optimizer: dict[str, Any]
    overrides: dict[str, Any]
    """Overrides for this objective only."""
    reconstruction: str
    """What had to be reconstructed because no public source states it; may be empty."""


@dataclass(frozen=True)
class NamedVariant:
    """A method that is an objective with settings of its own."""

    name: str
    """In place of an objective's name, wherever the record names one."""
    objective: str
    title: str


@dataclass(frozen=True)
class IdenticalLogits:
    """Objectives whose final test logits are elementwise equal for one seed."""

    seed: int
    objectives: tuple[str, ...]


@dataclass(frozen=True)
class NetworkState:
    """A network shared by the whole grid, evaluated on the test split."""

    model: str
    fingerprint: str
    accuracy: float | None
    """None where only a cache of the network was available."""
    label_loss: float | None


@dataclass(frozen=True)
class SeedStart:
    """What a seed starts from, where every seed has samples or a start of its own."""

    seed: int
    fingerprint: str
    """Of the student before its first step."""
    data_fingerprint: str
    """Of its training samples."""
    accuracy: float
    label_loss: float


@dataclass(frozen=True)
class DataFacts:
    """The data of the grid."""

    name: str
    classes: int
    train_samples: int
    test_samples: int
    fingerprint: str
    """Fingerprint of the training split; where every seed has samples of its own, of all of them."""
    class_names: tuple[str, ...] | None = added(None)
    validation_samples: int | None = added(None)


@dataclass(frozen=True)
class PaperProtocol:
    """Which column of the paper's tables a grid belongs to."""

    domain: str | None
    """`vision`, `text`, or None for other data."""
    differences: tuple[str, ...]
    """Differences from the paper; its numbers are shown next to ours only if there are none."""


@dataclass(frozen=True)
class EnvironmentGroup:
    """Cells that ran with the same versions on the same kind of device."""

    cells: tuple[str, ...]
    python: str
    platform: str
    device: str
    libraries: dict[str, str]


@dataclass(frozen=True)
class ComparisonRecord(Record):
    """What `tpkd compare` found. The result of a cell is that of its last epoch, fixed in advance, unless `selection`
    says otherwise."""

    name: str
    confidence_level: float
    """Confidence level of each interval, without correction for multiple comparisons."""
    objectives: tuple[str, ...]
    seeds: tuple[int, ...]
    """All seeds requested for any objective."""
    data: DataFacts | None
    start: NetworkState | None
    """The student before its first step."""
    teacher: NetworkState | None
    paper: PaperProtocol
    protocol: dict[str, Any]
    """The configuration that all cells share, resolved, dotted key -> value."""
    settings: tuple[MethodSettings, ...]
    cells: tuple[Cell, ...]
    methods: tuple[MethodSummary, ...]
    identical: tuple[IdenticalLogits, ...]
    environments: tuple[EnvironmentGroup, ...]
    selection: str = added("last")
    """Which students the accuracies are those of: `last` or `best-validation`, as in the configuration."""
    variants: tuple[NamedVariant, ...] = added(())
    """Methods that are not objectives by themselves."""
    starts: tuple[SeedStart, ...] = added(())
    """Of every seed, where they differ; `start` then has their means, and the fingerprint of all of them."""

    def objective_of(self, name: str) -> str:
        """The objective of a method: itself, or that which it is a variant of."""
        return next((variant.objective for variant in self.variants if variant.name == name), name)

    @property
    def stamp(self) -> str:
        """What goes with every accuracy of students that are not those of the last epoch; else empty."""
        return "" if self.selection == "last" else SELECTED

    @property
    def whose(self) -> str:
        """Which students the accuracies are those of, for captions."""
        return "of the selected students" if self.stamp else "after the last epoch"

    @property
    def has_intervals(self) -> bool:
        """Whether any paired difference has an interval, that is, more than one seed."""
        return any(pair.low is not None for method in self.methods for pair in method.versus)


@dataclass(frozen=True)
class ReportRecords:
    """What a report is made from: titles of the objectives, and records; only the comparison is required."""

    methods: Catalogue
    comparison: ComparisonRecord
    blocking: BlockingRecord | None = None
    exact_head: ExactHeadRecord | None = None
    certificates: CertificatesRecord | None = None
    continuation: ContinuationRecord | None = None
    diagnosis: DiagnosisRecord | None = None
    """Diagnosis of one final student."""
    illustrations: IllustrationsRecord | None = None
    assessment: Assessment | None = None
    """What the owner asks; None in the paper's own layout."""
    networks: NetworksRecord | None = None
    sweep: "SweepRecord | None" = None

    @property
    def studies(self) -> dict[str, StudyRecord]:
        """The available mechanism studies, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, StudyRecord)}

    @property
    def paper_domain(self) -> str | None:
        """The paper's column to show next to ours; None unless the protocol is the paper's."""
        paper = self.comparison.paper
        return paper.domain if not paper.differences else None
