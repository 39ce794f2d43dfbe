"""What a comparison of objectives over seeds found: every cell of the grid, and what follows from them."""

from dataclasses import dataclass
from typing import Any

from tpkd.diagnosis.record import DiagnosisRecord
from tpkd.figures.record import IllustrationsRecord
from tpkd.mechanism.record import BlockingRecord, CertificatesRecord, ContinuationRecord, ExactHeadRecord, StudyRecord
from tpkd.record import Record, added


@dataclass(frozen=True)
class CellCurves:
    """What the monitor saw in each epoch of a run, on training batches, in the mean; none where it never looked."""

    epochs: tuple[int, ...]
    label_loss: tuple[float, ...]
    conditional_loss: tuple[float, ...]
    blocked_share: tuple[float, ...]


@dataclass(frozen=True)
class FinalState:
    """The last student of a run against the teacher, on the test split."""

    blocked_examples: int
    blocked_share: float
    conditional_loss: float
    conditional_loss_blocked: float | None
    """None where no example is blocked."""
    transfer_cost: float
    imitation_loss: float
    label_loss: float


@dataclass(frozen=True)
class Cell:
    """One objective with one seed."""

    objective: str
    seed: int
    directory: str
    """Where the run is kept, seen from the record."""
    status: str
    """`finished`, `failed` or `missing`."""
    problem: str | None
    """Why it failed, in one line."""
    accuracy: float | None = None
    """Of the last epoch's student on the test split, in [0, 1]; None, as everything below, unless finished."""
    label_loss: float | None = None
    steps: int | None = None
    samples: int | None = None
    skipped_steps: int | None = None
    seconds: float | None = None
    student_fingerprint: str | None = None
    logits_sha256: str | None = None
    """Of the bytes of the test logits."""
    selection_rates: tuple[float, ...] | None = None
    """Share of samples whose target was the teacher's, epoch by epoch; None for objectives that do not select."""
    curves: CellCurves | None = None
    final: FinalState | None = None

    @property
    def name(self) -> str:
        """How messages and files call it."""
        return f"{self.objective}-{self.seed}"


@dataclass(frozen=True)
class PairedDifference:
    """Accuracy minus that of a reference with the same seed, over the seeds that both have finished."""

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
    """Those that finished."""
    missing_seeds: tuple[int, ...]
    """Those that were asked for and did not."""
    accuracies: tuple[float, ...]
    mean: float | None
    """None where no seed finished."""
    standard_deviation: float | None
    """Of the sample, n - 1 in the denominator; None with fewer than two seeds."""
    low: float | None
    """The t-interval of the mean; None with fewer than two seeds."""
    high: float | None
    versus: tuple[PairedDifference, ...]
    seconds: float | None
    """Wall-clock of a run in the mean."""
    final: dict[str, float | None]
    """Means over the seeds of the fields of their final states; empty without a teacher to compare with."""

    @property
    def asked_seeds(self) -> tuple[int, ...]:
        """Those that finished and those that did not."""
        return tuple(sorted((*self.seeds, *self.missing_seeds)))


@dataclass(frozen=True)
class MethodSettings:
    """What one objective was trained with, as resolved."""

    objective: str
    settings: dict[str, Any]
    optimizer: dict[str, Any]
    overrides: dict[str, Any]
    """What holds for this objective alone."""
    reconstruction: str
    """What no public source fixes; empty where nothing is."""


@dataclass(frozen=True)
class IdenticalLogits:
    """Objectives whose final test logits are elementwise equal for one seed."""

    seed: int
    objectives: tuple[str, ...]


@dataclass(frozen=True)
class NetworkState:
    """A network that the whole grid shares, on the test split."""

    model: str
    fingerprint: str
    accuracy: float | None
    """None where the network was not at hand, only its cache."""
    label_loss: float | None


@dataclass(frozen=True)
class DataFacts:
    """The samples of the grid."""

    name: str
    classes: int
    train_samples: int
    test_samples: int
    fingerprint: str
    """Of the training split."""
    class_names: tuple[str, ...] | None = added(None)


@dataclass(frozen=True)
class PaperProtocol:
    """Which column of the paper's tables a grid belongs to."""

    domain: str | None
    """`vision`, `text`, or None where the data are others."""
    differences: tuple[str, ...]
    """What is not as in the paper; its numbers stand beside ours only where this is empty."""


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
    """What `tpkd compare` found. The result of a cell is that of its last epoch, fixed in advance."""

    name: str
    confidence_level: float
    """Of every interval, each for itself."""
    objectives: tuple[str, ...]
    seeds: tuple[int, ...]
    """All that some objective was asked for with."""
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

    @property
    def has_intervals(self) -> bool:
        """Whether some difference has more than one seed, and so an interval to speak of."""
        return any(pair.low is not None for method in self.methods for pair in method.versus)


@dataclass(frozen=True)
class ReportRecords:
    """The records of a comparison; all but the first may be missing."""

    comparison: ComparisonRecord
    blocking: BlockingRecord | None = None
    exact_head: ExactHeadRecord | None = None
    certificates: CertificatesRecord | None = None
    continuation: ContinuationRecord | None = None
    diagnosis: DiagnosisRecord | None = None
    """Of one final student."""
    illustrations: IllustrationsRecord | None = None

    @property
    def studies(self) -> dict[str, StudyRecord]:
        """The mechanism studies that are there, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, StudyRecord)}

    @property
    def paper_domain(self) -> str | None:
        """The paper's column to show beside ours; None unless the protocol is the paper's."""
        paper = self.comparison.paper
        return paper.domain if not paper.differences else None
