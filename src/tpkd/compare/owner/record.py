"""What the owner of a comparison asks: every method with two intervals, its answers, and what networks cost."""

from dataclasses import dataclass

from tpkd.quality.record import ReliabilityBin
from tpkd.record import Record, added


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and test samples, with an interval for each of the two sources of chance."""

    mean: float
    seeds: int
    """Number of seeds."""
    seed_low: float | None
    """The t-interval over seeds; None with fewer than two."""
    seed_high: float | None
    sample_low: float | None
    """The interval over test samples; None where the answers were not kept."""
    sample_high: float | None

    @property
    def wider(self) -> tuple[float, float] | None:
        """The wider of the intervals that are known; None if there is neither.

        Example:
            >>> Estimate(0.5, 3, 0.25, 0.75, 0.375, 0.625).wider
            (0.25, 0.75)
        """
        known = [
            (low, high)
            for low, high in ((self.seed_low, self.seed_high), (self.sample_low, self.sample_high))
            if low is not None and high is not None
        ]
        return max(known, key=lambda interval: interval[1] - interval[0], default=None)

    @property
    def side(self) -> int:
        """Of a difference: 1 above zero, -1 below, 0 undecided.

        The wider interval decides. One seed never does: how far another run would move is not known.

        Example:
            >>> Estimate(0.5, 3, 0.25, 0.75, -0.5, 1.5).side, Estimate(0.5, 1, None, None, 0.25, 0.75).side
            (0, 0)
            >>> Estimate(-0.5, 3, -0.75, -0.25, -0.625, -0.375).side
            -1
        """
        interval = self.wider
        if interval is None or self.seed_low is None:
            return 0
        return int(interval[0] > 0) - int(interval[1] < 0)


@dataclass(frozen=True)
class AnswerSummary:
    """How good the answers of a network are; means over seeds where there are several."""

    log_loss: float | None
    brier_score: float
    calibration_error: float
    confidence_gap: float
    """Mean confidence minus accuracy: positive if the network is too sure."""
    risk_coverage_area: float
    reliability: tuple[ReliabilityBin, ...]
    """Over the examples of all seeds together."""
    coverage: tuple[float, ...]
    risk: tuple[float, ...]
    class_accuracy: tuple[float | None, ...]
    """By class; None for a class without test samples."""


@dataclass(frozen=True)
class MethodAssessment:
    """One objective."""

    objective: str
    accuracy: Estimate
    minus_reference: Estimate | None
    """Paired by seed and by sample; None for the reference itself, and where no seed has both."""
    minus_best: Estimate | None
    """None for the best itself."""
    answers: AnswerSummary | None
    """None where the answers of a seed were not kept."""


@dataclass(frozen=True)
class TeacherAssessment:
    """The teacher on the same test samples."""

    accuracy: Estimate
    minus_reference: Estimate | None
    answers: AnswerSummary | None


@dataclass(frozen=True)
class ClassFacts:
    """A class of the test split."""

    name: str
    examples: int


@dataclass(frozen=True)
class Confusion:
    """A wrong answer for a label."""

    label: int
    answer: int
    """Classes by index."""
    counts: dict[str, float]
    """Objective -> how often, as a mean over seeds."""
    teacher: float | None
    """How often by the teacher."""


@dataclass(frozen=True)
class ClaimedPair:
    """The difference of two methods that a claim is about, if seeds and test samples had both been drawn anew."""

    objective: str
    reference: str
    error: float
    """Standard error over seeds and test samples together."""
    low: float
    """The t-interval of the mean, with one degree of freedom fewer than seeds."""
    high: float


@dataclass(frozen=True)
class Assessment(Record):
    """Every method of a comparison as its owner sees it; computed from the record and the kept answers."""

    confidence_level: float
    reference: str | None
    """The objective that others are compared with: CE, or KD without it."""
    best: str | None
    """The objective with the largest mean."""
    methods: tuple[MethodAssessment, ...]
    """Objectives with a finished seed."""
    teacher: TeacherAssessment | None
    start: Estimate | None
    """Accuracy of the student before its first step."""
    classes: tuple[ClassFacts, ...]
    """Empty where no answers were kept."""
    confusions: tuple[Confusion, ...]
    """The most frequent wrong answers of the best method."""
    claimed: tuple[ClaimedPair, ...] = added(())
    """Pairs of the paper's claims of which the answers of two seeds or more were kept."""

    def find(self, objective: str | None) -> MethodAssessment | None:
        """The method of this name."""
        return next((method for method in self.methods if method.objective == objective), None)


@dataclass(frozen=True)
class Latency:
    """Time of a forward pass."""

    batch_size: int
    milliseconds: float | None
    """Per sample; the median of the repeats. None where the batch did not fit into memory."""
    repeats: int


@dataclass(frozen=True)
class NetworkCost:
    """Size and speed of a network."""

    model: str
    fingerprint: str
    parameters: int
    """Of a single run, from its file of weights: buffers included."""
    bytes: int
    """Of all parameters and buffers in memory; of a single run, the size of its file of weights."""
    latencies: tuple[Latency, ...]
    """Empty for a single run, which is not timed."""


@dataclass(frozen=True)
class NetworksRecord(Record):
    """What student and teacher cost on the machine that compared them."""

    device: str
    threads: int
    precision: str
    student: NetworkCost
    teacher: NetworkCost | None
    """None where only its outputs are known; of several teachers, all together."""
