"""What decides a claim about an experiment: how many runs it needs, which interval counts, and what is called equal.

The rules were fixed before the runs they judge. They are about experiments: nothing here decides a theorem.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

FEWEST_SEEDS = 10
"""Of a verdict about accuracy, and of repeats for a verdict about a continuation."""
FEWEST_BLOCKING_SEEDS = 5
"""Of a verdict about the growth of blocking and about what remains where imitation is blocked."""
LEVEL = 0.95
EQUAL_WITHIN = 0.002
"""Two methods are called equal if the 90 % interval of their difference lies within 0.2 points of zero."""
LITTLE = 0.005
"""Half a point: the largest cost of the projection that still counts as small."""
GROWTH = 0.01
"""Blocking grows by more than one point from the first state to the last, or the claim is not supported."""

SUPPORTED, NOT_SUPPORTED, UNDECIDED = "supported", "not supported", "too small to tell"
EQUAL = f"equal within {100 * EQUAL_WITHIN:g} points"
NOT_ASKED = "this setting does not ask"
"""The verdict on accuracy where cross-entropy does not gain over the start."""


@dataclass(frozen=True)
class Measured:
    """A mean over seeds or repeats, and its standard error: the largest of those that are known."""

    mean: float
    error: float | None
    """None with fewer than two seeds."""
    seeds: int

    def interval(self, level: float = LEVEL) -> tuple[float, float] | None:
        """The t-interval with one degree of freedom fewer than seeds; None with fewer than two.

        Example:
            >>> low, high = Measured(2.0, 1 / math.sqrt(3), 3).interval()
            >>> round(low, 3), round(high, 3)
            (-0.484, 4.484)
        """
        if self.error is None or self.seeds < 2:
            return None
        half = _quantile((1 + level) / 2, self.seeds - 1) * self.error
        return self.mean - half, self.mean + half

    def p_value(self, limit: float = 0.0) -> float:
        """Two-sided p-value of the t-test against a limit; 1 with fewer than two seeds.

        Example:
            >>> round(Measured(2.0, 1 / math.sqrt(3), 3).p_value(), 4)
            0.0742
        """
        if self.error is None or self.seeds < 2:
            return 1.0
        if self.error == 0.0:
            return float(self.mean == limit)
        from scipy.stats import t  # takes half a second to import, and only verdicts need it

        return float(2 * t.sf(abs(self.mean - limit) / self.error, self.seeds - 1))


def _quantile(probability: float, freedom: int) -> float:
    from scipy.stats import t

    return float(t.ppf(probability, freedom))


def measure(values: Sequence[float], *other_errors: float) -> Measured:
    """Values by seed as a mean with its standard error, or with the largest of other standard errors of that mean.

    Example:
        >>> measure([1.0, 2.0, 3.0]).error == 1 / math.sqrt(3), measure([1.0, 2.0, 3.0], 2.0).error
        (True, 2.0)
    """
    error = None
    if len(values) > 1:
        error = max(statistics.stdev(values) / math.sqrt(len(values)), *other_errors, 0.0)
    return Measured(statistics.fmean(values), error, len(values))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for having asked them all (Holm 1979), in the same order.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    adjusted, least = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = least
    return adjusted


@dataclass(frozen=True)
class AccuracyClaim:
    """That the accuracy of one method minus that of another is on one side of a limit."""

    left: str
    right: str
    statement: str
    sign: int = 1
    """1: the difference is above the limit; -1: below."""
    limit: float = 0.0

    def p_value(self, found: Measured) -> float:
        """Against the limit of this claim."""
        return found.p_value(self.limit)


PAPER_CLAIMS = (
    AccuracyClaim("tpkd", "kd", "TPKD ends above KD"),
    AccuracyClaim("tpkd", "ce", "TPKD ends above CE"),
    AccuracyClaim("tpkd-no-ce", "tpkd", "without the label gradient accuracy is lower than TPKD's", sign=-1),
    AccuracyClaim("safe-full-kl", "tpkd", "protecting full imitation instead is below TPKD", sign=-1),
    AccuracyClaim(
        "tpkd-no-projection",
        "tpkd",
        f"the projection costs little (not more than {100 * LITTLE:g} points)",
        sign=-1,
        limit=LITTLE,
    ),
)
"""What the paper says about the accuracies of its experiments."""


def judge_accuracy(claim: AccuracyClaim, found: Measured, adjusted: float, *, asked: bool = True) -> str:
    """The verdict on a claim about accuracy.

    Args:
        claim: what was claimed.
        found: the paired difference, left minus right.
        adjusted: its p-value after Holm's correction over all accuracy claims of the family.
        asked: whether cross-entropy gains over the start.

    Example:
        >>> claim = AccuracyClaim("tpkd", "kd", "TPKD ends above KD")
        >>> judge_accuracy(claim, Measured(0.01, 0.001, 30), 0.001)
        'supported'
        >>> judge_accuracy(claim, Measured(0.01, 0.001, 3), 0.001)
        'no verdict: 3 of 10 seeds'
        >>> judge_accuracy(claim, Measured(0.0003, 0.0005, 30), 0.9)
        'equal within 0.2 points'
    """
    if not asked:
        return NOT_ASKED
    if found.seeds < FEWEST_SEEDS:
        return too_few(found.seeds)
    if adjusted < 1 - LEVEL:
        return SUPPORTED if claim.sign * (found.mean - claim.limit) > 0 else NOT_SUPPORTED
    return EQUAL if claim.limit == 0 and is_equal(found) else UNDECIDED


def is_equal(found: Measured) -> bool:
    """Whether the 90 % interval of a difference of accuracies lies within 0.2 points of zero.

    Example:
        >>> is_equal(Measured(0.0, 0.001, 30)), is_equal(Measured(0.001, 0.001, 30))
        (True, False)
    """
    interval = found.interval(0.9)
    return interval is not None and interval[0] > -EQUAL_WITHIN and interval[1] < EQUAL_WITHIN


def too_few(seeds: int, fewest: int = FEWEST_SEEDS, noun: str = "seeds") -> str:
    """The verdict where there are not enough seeds.

    Example:
        >>> too_few(3)
        'no verdict: 3 of 10 seeds'
    """
    return f"no verdict: {seeds} of {fewest} {noun}"


def gains(accuracies: Sequence[float], starts: Sequence[float]) -> bool:
    """Whether cross-entropy gains over the start: with two seeds or more, the interval of the gain is above zero.

    Args:
        accuracies: of cross-entropy, by seed.
        starts: of the same seeds before the first step.

    Example:
        >>> gains([0.6, 0.62, 0.61], [0.5, 0.5, 0.5]), gains([0.5, 0.52, 0.48], [0.5, 0.5, 0.5])
        (True, False)
    """
    found = measure([after - before for after, before in zip(accuracies, starts, strict=True)])
    interval = found.interval()
    return found.mean > 0 if interval is None else interval[0] > 0


def judge_growth(differences: Sequence[float]) -> str:
    """The verdict on the growth of blocking: the share at the last state minus that at the first, by seed.

    Example:
        >>> judge_growth([0.4, 0.41, 0.39, 0.4, 0.4]), judge_growth([0.4])
        ('supported', 'no verdict: 1 of 5 seeds')
        >>> judge_growth([0.001, 0.002, 0.001, 0.0, 0.001])
        'not supported'
    """
    if len(differences) < FEWEST_BLOCKING_SEEDS:
        return too_few(len(differences), FEWEST_BLOCKING_SEEDS)
    return _beyond(measure(differences), GROWTH)


def judge_remaining(remaining: Sequence[float], floor: Sequence[float] | None) -> str:
    """The verdict on what remains where imitation is blocked: conditional KL there, against a noise floor.

    The floor is the conditional KL between two networks that differ in the seed alone: students that far apart know the
    same.

    Args:
        remaining: mean conditional KL of the blocked examples, by seed; seeds without any are left out.
        floor: conditional KL between pairs of seeds of one network; None where it was not measured.

    Example:
        >>> judge_remaining([2.0, 2.1, 1.9, 2.0, 2.0], [0.4, 0.5]), judge_remaining([2.0], None)
        ('supported', 'no verdict: the noise floor was not measured')
    """
    if not floor:
        return "no verdict: the noise floor was not measured"
    if len(remaining) < FEWEST_BLOCKING_SEEDS:
        return too_few(len(remaining), FEWEST_BLOCKING_SEEDS)
    return _beyond(measure(remaining), statistics.fmean(floor))


def judge_continuation(conditional: Sequence[float], label: Sequence[float]) -> str:
    """The verdict on a continuation: TPKD's conditional KL ends lower, and its label loss does not end higher.

    Args:
        conditional: TPKD's conditional KL minus the other's at the end, by repeat.
        label: the same of the label loss.

    Returns:
        Supported where the conditional KL is below, and the interval of the label loss is not above zero; not supported
        where either is on the other side.

    Example:
        >>> judge_continuation([-0.5] * 10, [0.001 * (-1) ** r for r in range(10)]), judge_continuation([-0.5], [0.1])
        ('supported', 'no verdict: 1 of 10 repeats')
        >>> judge_continuation([-0.5] * 10, [0.1] * 10)
        'not supported: the label loss ends higher'
    """
    if len(conditional) < FEWEST_SEEDS:
        return too_few(len(conditional), noun="repeats")
    below = _beyond(measure([-value for value in conditional]), 0.0)
    if below == SUPPORTED and _beyond(measure(label), 0.0) == SUPPORTED:
        return f"{NOT_SUPPORTED}: the label loss ends higher"
    return below


def _beyond(found: Measured, limit: float) -> str:
    interval = found.interval()
    if interval is None or interval[0] <= limit < interval[1]:
        return UNDECIDED
    return SUPPORTED if interval[0] > limit else NOT_SUPPORTED
