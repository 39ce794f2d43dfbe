"""Results of a sweep: every combination of settings on the validation part, and the best of each objective."""

from dataclasses import dataclass
from typing import Any

from tpkd.compare.record import SELECTED, DataFacts, NetworkState
from tpkd.record import Record

SWEEP_RECORD_NAME = "sweep.json"
RATE = "rate"
ALIASES = {RATE: "optimizer.learning_rate"}
"""Short names of swept keys."""
SETTINGS = "objective.settings."
"""What comes before the name of a setting in its key."""


@dataclass(frozen=True)
class TrialCell:
    """One combination with one seed. The test split was not evaluated."""

    seed: int
    directory: str
    """The run directory, relative to the record."""
    status: str
    """`finished`, `failed` or `missing`."""
    problem: str | None
    """The reason for a failure, in one line."""
    accuracy: float | None
    """On the validation part, in [0, 1]; None, like everything below, unless finished."""
    label_loss: float | None
    selected_epoch: int | None
    """The epoch of the student, where it was selected by validation."""
    seconds: float | None


@dataclass(frozen=True)
class TrialSummary:
    """One combination of settings over its seeds."""

    objective: str
    settings: dict[str, Any]
    """Dotted key -> value; empty where the objective has none of the swept settings."""
    cells: tuple[TrialCell, ...]
    seeds: tuple[int, ...]
    """Seeds that finished."""
    missing_seeds: tuple[int, ...]
    """Seeds of the objective, in any of its combinations, that this one has not finished."""
    mean: float | None
    """Of the accuracy; None where no seed finished."""
    standard_deviation: float | None
    """Sample standard deviation (n - 1 in the denominator); None with fewer than two seeds."""
    label_loss: float | None
    """Mean over seeds."""
    best: bool
    """Whether it is the best combination of its objective, of those that have finished all seeds; False for one that
    there is nothing to compare with."""

    @property
    def name(self) -> str:
        """The objective and its settings, in words."""
        said = " ".join(f"{short_key(key)}={value}" for key, value in self.settings.items())
        return f"{self.objective} {said}" if said else self.objective


@dataclass(frozen=True)
class SweepRecord(Record):
    """What `tpkd compare --sweep` found on the validation part; nothing in it comes from the test split."""

    name: str
    keys: tuple[str, ...]
    """The swept keys, dotted, in order."""
    seeds: tuple[int, ...]
    """All seeds requested for any combination."""
    data: DataFacts
    start: NetworkState
    """The student before its first step, on the validation part."""
    teacher: NetworkState | None
    """On the validation part."""
    selection: str
    """Which students the accuracies are those of: `last` or `best-validation`, as in the configuration."""
    methods: dict[str, dict[str, Any]]
    """Overrides of the configuration for single objectives."""
    trials: tuple[TrialSummary, ...]

    @property
    def stamp(self) -> str:
        """What goes with accuracies of students that are not those of the last epoch; else empty."""
        return "" if self.selection == "last" else SELECTED

    @property
    def best(self) -> tuple[TrialSummary, ...]:
        """The best combination of each objective that has one."""
        return tuple(trial for trial in self.trials if trial.best)


def short_key(key: str) -> str:
    """A swept key as people write it.

    Example:
        >>> short_key("objective.settings.beta"), short_key("optimizer.learning_rate"), short_key("clip_norm")
        ('beta', 'rate', 'clip_norm')
    """
    return {full: name for name, full in ALIASES.items()}.get(key, key.removeprefix(SETTINGS))
