"""What the four mechanism studies found on the snapshots of a run."""

from dataclasses import dataclass

from tpkd.record import Record, added

FRESH = "fresh"
"""The optimiser of a state that brought none: without momentum or other history."""


@dataclass(frozen=True)
class Check:
    """One statement, looked at case by case."""

    name: str
    statement: str
    theorem: bool
    """Whether the theory says so in every case; an observation may fail without anything being wrong."""
    cases: int
    violations: int
    """Cases that break it by more than the tolerance of the study."""
    worst: float | None
    """The least left side minus right side, negative where a case breaks it; None without cases, and where the
    difference is not a finite number in one of them."""


@dataclass(frozen=True)
class Scaling:
    """A size that the data did not allow."""

    name: str
    asked: int
    used: int
    reason: str


@dataclass(frozen=True)
class StudySource:
    """Which run the snapshots belong to, and what it was made of; for states given as files, the configuration's."""

    objective: str
    seed: int
    student: str
    """The name of its model."""
    data: str
    num_classes: int
    data_fingerprint: str
    teacher_fingerprint: str
    versions: dict[str, str]


@dataclass(frozen=True)
class StudyRecord(Record):
    """What all studies say beside their numbers."""

    source: StudySource
    study_seed: int
    tolerance: float
    scalings: tuple[Scaling, ...]
    checks: tuple[Check, ...]

    @property
    def violations(self) -> int:
        """Cases in which something happened that the theory excludes."""
        return sum(check.violations for check in self.checks if check.theorem)


@dataclass(frozen=True)
class SnapshotState:
    """A student on its way."""

    name: str
    """The objective and the epoch, such as CE20; of a given state the name that was given with it."""
    epoch: int | None
    """None for a given state."""
    step: int | None
    """None where nothing but weights is known."""
    student_fingerprint: str
    file: str | None = added(None)
    """The name of the file of a given state."""
    optimizer: str | None = added(None)
    """What training iterations started with, if not with the optimiser of the snapshot: the name of the file with its
    state, or `fresh`."""


@dataclass(frozen=True)
class BlockedSet:
    """Some pairs of a sample and a view, and what is left to learn in the blocked ones."""

    pairs: int
    blocked: int
    blocked_share: float
    conditional_loss: float | None
    """Mean over the blocked pairs, as the next; None where there is none."""
    transfer_cost: float | None


@dataclass(frozen=True)
class BlockingView(BlockedSet):
    """One fixed view of all samples."""

    view: int


@dataclass(frozen=True)
class BlockingState(BlockedSet):
    """All views of all samples at one state."""

    state: SnapshotState
    positive: int
    """Blocked pairs whose conditional loss is above the tolerance."""
    views: tuple[BlockingView, ...]


@dataclass(frozen=True)
class BlockingSplit:
    """The samples of one split."""

    split: str
    data_fingerprint: str
    num_views: int
    sample_ids: tuple[int, ...]
    states: tuple[BlockingState, ...]


@dataclass(frozen=True)
class BlockingRecord(StudyRecord):
    """How much of ordinary training is blocked, and what is left to learn there."""

    splits: tuple[BlockingSplit, ...]
    missing: dict[str, str]
    """Splits that could not be looked at, and why."""


@dataclass(frozen=True)
class ExactHeadBatch:
    """Every direction on one batch; losses and changes are means over its examples."""

    batch: int
    sample_ids: tuple[int, ...]
    view_ids: tuple[int, ...]
    condition_number: float
    """Of the features with the column of ones."""
    conditional_loss: dict[str, float]
    """At the start and after a step of each direction."""
    label_loss: dict[str, float]
    potential: dict[str, float]
    gain: float
    """CE's conditional loss after the step minus TPKD's."""
    positive_examples: int
    lost_examples: dict[str, int]
    """Examples that lost at least one margin of the CE step, by direction."""
    least_retention: float
    least_cosine: float
    execution_error: float
    """The largest distance of a logit from where its direction sends it."""


@dataclass(frozen=True)
class ExactHeadState:
    """All batches at one state; loss columns are means over examples, minima are over examples."""

    state: SnapshotState
    examples: int
    gain: float
    conditional_change: float
    """TPKD after the step minus start, as the next."""
    potential_change: float
    least_retention: float
    least_cosine: float
    positive_batches: int
    positive_examples: int
    lost_examples: dict[str, int]
    compensation_difference: float
    """The largest difference between the conditional losses after a compensation-only and a CE step."""
    least_alignment_residual: float
    """R_h = g'v - |v|^2 - gamma |g|^2 / 4; c_{w,beta} (|h|^2 + |u|^2) is subtracted for another coefficient."""
    least_descent_slack: float | None
    """The fall of the potential minus the part of it that is certain beforehand; None where no part of it is."""
    execution_error: float
    margin_discrepancy: float
    """By how much the margin that TPKD left lowest is below the CE step's; rounding."""
    repeat_difference: float
    """The largest difference of a logit when the first batch is done once more."""
    batches: tuple[ExactHeadBatch, ...]


@dataclass(frozen=True)
class ExactHeadRecord(StudyRecord):
    """What steps of the classifier alone learn and keep, on frozen features."""

    step_size: float
    batch_size: int
    directions: tuple[str, ...]
    retention_bound: float
    cosine_bound: float | None
    """Of cos(g_Phi, v); None where the coefficient is not the paper's, and nothing is claimed of the cosine."""
    candidate_steps: int
    states: tuple[ExactHeadState, ...]
    beta: float = added(0.5)
    """The coefficient of TPKD and its controls; the paper's unless the settings of the objective say otherwise."""


@dataclass(frozen=True)
class PairSpectrum:
    """How the network stretches one pair of signals; None for what is infinite."""

    min_stretch: float
    max_stretch: float
    distortion_ratio: float | None
    limit: float
    cosine: float
    measured_limit: float | None
    inner_product: float
    passes: bool
    passes_measured: bool


@dataclass(frozen=True)
class CertificateBatch:
    """Both geometric tests and one native pair on a batch."""

    batch: int
    sample_ids: tuple[int, ...]
    view_ids: tuple[int, ...]
    conditional: PairSpectrum | None
    """None where nothing conditional is left to learn."""
    joint: PairSpectrum | None
    conditional_loss: dict[str, float]
    """The batch mean at the start and after one training iteration of each objective."""
    gain: float
    """Compensation-only's minus TPKD's."""


@dataclass(frozen=True)
class CertificateState:
    """All batches at one state."""

    state: SnapshotState
    conditional_passes: int
    joint_passes: int
    positive_pairs: int
    gain: float
    """Mean over the batches."""
    skipped_steps: int
    """Iterations that mixed precision left out because a gradient overflowed."""
    batches: tuple[CertificateBatch, ...]


@dataclass(frozen=True)
class CertificatesRecord(StudyRecord):
    """Whether the conditional advantage survives ordinary backpropagation."""

    batch_size: int
    microbatch: int
    native_microbatch: int
    learning_rate: float
    rank_tolerance: float
    spectral_tolerance: float
    conditional_limit: float
    joint_limit: float
    states: tuple[CertificateState, ...]
    beta: float = added(0.5)
    """The coefficient of TPKD and its controls; the paper's unless the settings of the objective say otherwise."""


@dataclass(frozen=True)
class ContinuationPoint:
    """Means over the observed samples after some iterations."""

    iteration: int
    conditional_loss: float
    label_loss: float
    blocked_share: float


@dataclass(frozen=True)
class ContinuationCurve:
    """One objective from the common state on."""

    objective: str
    student_fingerprint: str
    """At the end."""
    skipped_steps: int
    """Iterations that mixed precision left out because a gradient overflowed."""
    points: tuple[ContinuationPoint, ...]


@dataclass(frozen=True)
class ContinuationRepeat:
    """The same objectives from the same state, on samples divided and ordered by another seed."""

    seed: int
    curves: tuple[ContinuationCurve, ...]


@dataclass(frozen=True)
class ContinuationRecord(StudyRecord):
    """Whether the advantage of a step accumulates."""

    state: SnapshotState
    iterations: int
    batch_size: int
    learning_rate: float
    update_ids: tuple[int, ...]
    """The samples that are learned from, once each unless they are fewer than the iterations take."""
    observation_ids: tuple[int, ...]
    observation_views: tuple[int, ...]
    curves: tuple[ContinuationCurve, ...]
    start: float
    """Conditional loss of the observed samples, as all that follows."""
    tpkd_end: float
    tpkd_minus_ce: float
    tpkd_minus_compensation: float
    beta: float = added(0.5)
    """The coefficient of TPKD and its controls; the paper's unless the settings of the objective say otherwise."""
    repeats: tuple[ContinuationRepeat, ...] = added(())
    """All but the first, which is what the fields above are about."""

    def differences(self, other: str, name: str) -> tuple[float, ...]:
        """TPKD's `conditional_loss` or `label_loss` at the end minus that of another objective, by repeat."""
        ends = [
            {curve.objective: getattr(curve.points[-1], name) for curve in curves}
            for curves in (self.curves, *(repeat.curves for repeat in self.repeats))
        ]
        return tuple(end["tpkd"] - end[other] for end in ends)


def states_of(record: StudyRecord) -> tuple[SnapshotState, ...]:
    """The states that a study looked at, each once, in their order."""
    if isinstance(record, BlockingRecord):
        return tuple(dict.fromkeys(state.state for split in record.splits for state in split.states))
    if isinstance(record, ExactHeadRecord | CertificatesRecord):
        return tuple(state.state for state in record.states)
    return (record.state,) if isinstance(record, ContinuationRecord) else ()
