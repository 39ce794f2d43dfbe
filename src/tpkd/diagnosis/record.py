"""What a diagnosis found."""

from dataclasses import dataclass

from tpkd.competence.record import Competence
from tpkd.record import Record, added


@dataclass(frozen=True)
class Histogram:
    """Counts in bins of equal width from zero; the last bin holds everything above as well."""

    width: float
    counts: tuple[int, ...]
    largest: float


@dataclass(frozen=True)
class ConfidenceBin:
    """The examples whose confidence lies in [low, high)."""

    low: float
    high: float
    examples: int
    teacher_examples: int
    """How many examples the teacher puts into this bin."""
    blocked: int
    blocked_share: float | None


@dataclass(frozen=True)
class Decomposition:
    """The mean teacher KL as confidence part + conditional part, in nats."""

    confidence: float
    conditional: float
    conditional_share: float | None
    """None where the teacher KL is zero."""
    inside: float | None = added(None)
    """With soft labels a third part: the differences among the correct classes, weighted with the teacher's confidence
    in them."""


@dataclass(frozen=True)
class FrontierCurve:
    """The mean least conditional loss at each budget of log-odds, over a uniform sample of the examples."""

    sample: int
    budgets: tuple[float, ...]
    values: tuple[float, ...]
    half_budget: float | None = added(None)
    """The budget that leaves half of what a zero budget leaves; None where there is nothing to halve, and in older
    records."""


@dataclass(frozen=True)
class ClassState:
    """Means over the examples of one class; None where it has none."""

    index: int
    name: str
    examples: int
    blocked_share: float | None
    confidence: float | None
    teacher_confidence: float | None
    conditional_loss: float | None
    transfer_cost: float | None


@dataclass(frozen=True)
class ClassPair:
    """What is left to learn about one competitor on the examples of one label."""

    label: str
    competitor: str
    examples: int
    left: float
    """Sum of q_j log(q_j / r_j), divided by the number of all examples: its part of the mean conditional loss."""
    left_per_example: float
    """The same sum, divided by the examples of the label."""
    teacher: float
    """Mean q_j."""
    student: float
    """Mean r_j."""


@dataclass(frozen=True)
class Competitor:
    """One incorrect class and its probability among the incorrect classes."""

    name: str
    probability: float


@dataclass(frozen=True)
class ExampleState:
    """One example whose exact transfer costs most."""

    row: int
    id: str
    label: str
    blocked: bool
    confidence: float
    teacher_confidence: float
    conditional_loss: float
    transfer_cost: float
    student_competitors: tuple[Competitor, ...]
    teacher_competitors: tuple[Competitor, ...]


@dataclass(frozen=True)
class Truncation:
    """How much a truncated teacher kept, and in which precision."""

    k: int
    dtype: str
    rest_stored: bool
    """Whether the total of all other classes was stored; one minus rounded numbers is far less exact."""


@dataclass(frozen=True)
class SoftLabels:
    """Labels that are probabilities: every class with a share is correct."""

    most_correct: int
    """The largest number of correct classes of an example."""
    mean_correct: float
    entropy: float
    """Mean entropy of the labels in nats: the least label loss."""


@dataclass(frozen=True)
class WithoutLabel:
    """Examples for which a truncated teacher does not give the label's log-probability: they enter no bound."""

    examples: int
    conditional_loss: float | None
    """Mean over the kept classes alone, which bounds nothing; None when there is no such example."""
    transfer_cost: float | None


@dataclass(frozen=True)
class StudentDiagnosis:
    """One student against the teacher.

    With a truncated teacher, `bounds` says what each number is worth. Then only examples whose label's log-probability
    is known enter bounds, the teacher's confidence, histograms, bins, pairs, the frontier and the costliest examples.
    """

    file: str
    examples: int
    num_classes: int
    blocked_examples: int
    blocked_share: float
    blocked: dict[str, float | None]
    """Means over the blocked examples; None when there is none."""
    all: dict[str, float]
    """The mean of every field of a diagnosis over all examples."""
    retention_bound: float
    """What theorem 3 guarantees for this number of classes."""
    decomposition: Decomposition
    conditional_loss: Histogram
    transfer_cost: Histogram
    confidence_bins: tuple[ConfidenceBin, ...]
    frontier: FrontierCurve
    classes: tuple[ClassState, ...]
    pairs: tuple[ClassPair, ...] | None
    """None where there are too many classes to keep a table of pairs in memory."""
    costliest: tuple[ExampleState, ...]
    competence: Competence | None = added(None)  # noqa: RUF009 (a field of ours, not a value)
    """How often teacher and student are right; with soft labels, how often they answer the largest share."""
    bounds: dict[str, str] | None = added(None)  # noqa: RUF009
    """What each number says about a truncated teacher: "exact", a "lower" or "upper" bound (up to the precision of what
    was stored), or what holds for the teacher "completed" by the student. None for a whole teacher: all exact.

    Means over blocked examples are then means over those that may be blocked, and bound the same means of the whole
    teacher over these examples.
    """
    without_label: WithoutLabel | None = added(None)  # noqa: RUF009
    """None for a whole teacher."""

    @property
    def known_examples(self) -> int:
        """The examples that enter bounds: all, unless a truncated teacher does not know some labels."""
        return self.examples - (self.without_label.examples if self.without_label else 0)


@dataclass(frozen=True)
class DiagnosisRecord(Record):
    """What `tpkd diagnose` found: one entry per student, in the order they were given."""

    teacher: str
    labels: str
    students: tuple[StudentDiagnosis, ...]
    class_names: tuple[str, ...] | None = added(None)
    """None where the classes are only counted."""
    truncation: Truncation | None = added(None)  # noqa: RUF009
    """What a truncated teacher kept; None for a whole one."""
    soft_labels: SoftLabels | None = added(None)  # noqa: RUF009
    """None where labels are classes."""
    beta: float = added(0.5)
    """Of the step that `compensation`, `retention` and `update_cosine` speak of."""
    temperature: float = added(1.0)
    """Of the same step."""
    ignored: int = added(0)
    """Rows whose label is -100; they enter nothing."""
    one_hot_labels: bool = added(False)
    """Whether the classes were read from one-hot rows."""
