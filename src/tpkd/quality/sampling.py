"""Intervals over test samples: how far an accuracy would move if other samples had been drawn.

They treat the students as fixed and the samples as drawn at random. An interval over seeds does the opposite; neither
includes the other's source of chance.
"""

import math
from statistics import NormalDist

import numpy as np
from jaxtyping import Float, Num

CONFIDENCE_LEVEL = 0.95


def accuracy_interval(correct: Num[np.ndarray, " rows"], level: float = CONFIDENCE_LEVEL) -> tuple[float, float]:
    """Interval of an accuracy over test samples.

    For one student this is the interval of Agresti and Coull (1998): the normal interval after z²/2 right and z²/2
    wrong answers are added to the sample, which keeps its level for accuracies near 0 and 1, where the plain normal
    interval and the bootstrap collapse to a point. For the mean over several students an example counts with the share
    of students that are right on it. The variance is then the sample variance of these shares, with the same additions,
    so students that fail on the same examples do not count as independent trials.

    Args:
        correct: share of the students that are right on each example, in [0, 1]; 0 and 1 for a single student.
        level: confidence level.

    Example:
        >>> low, high = accuracy_interval(np.array([1.0] * 95 + [0.0] * 5))
        >>> round(low, 3), round(high, 3)
        (0.885, 0.981)
        >>> round(accuracy_interval(np.ones(100))[0], 3)
        0.956
    """
    z = _quantile(level)
    low, high = _augmented(correct, z * z / 2, z * z / 2, z)
    return max(low, 0.0), min(high, 1.0)


def difference_interval(differences: Num[np.ndarray, " rows"], level: float = CONFIDENCE_LEVEL) -> tuple[float, float]:
    """Interval of a difference of two accuracies on the same test samples.

    For two students this is the interval of Bonett and Price (2012) for paired proportions: the normal interval after
    one example that only the first student knows and one that only the second knows are added. With few disagreements
    it agrees with McNemar's exact test where the plain normal interval claims too much. For means over several pairs
    of students the difference of an example is the mean over the pairs.

    Args:
        differences: share of pairs in which the first is right minus that in which the second is, per example,
            in [-1, 1].
        level: confidence level.

    Example:
        >>> low, high = difference_interval(np.array([1.0] * 30 + [-1.0] * 10 + [0.0] * 960))
        >>> round(low, 4), round(high, 4)
        (0.0073, 0.0326)
    """
    low, high = _augmented(differences, 1, 0, _quantile(level), opposite=1)
    return max(low, -1.0), min(high, 1.0)


def two_way_error(differences: Num[np.ndarray, "seeds rows"]) -> float:
    """Standard error of a mean over seeds and test samples, if both had been drawn anew.

    With x_si = mean + seed_s + sample_i + rest_si, the variance of the mean over S seeds and n samples is
    V_seed/S + V_sample/n + V_rest/(S n). The variance of the means by seed contains the first and the last term, that
    of the means by sample the second and the last, so the last is taken off once. It is never below the error over
    seeds alone.

    Args:
        differences: a value per seed and test sample, such as right minus right of another method; two or more of each.

    Example:
        >>> by_seed, by_sample = np.array([[0.0], [1.0], [2.0]]), np.array([[0.0, 3.0, 6.0, 3.0]])
        >>> round(two_way_error(by_seed + by_sample) ** 2, 6) == round(1 / 3 + 6 / 4, 6)
        True
    """
    seeds, rows = differences.shape
    over_seeds = differences.mean(1)
    over_rows = differences.mean(0)
    rest = differences - over_seeds[:, None] - over_rows[None, :] + differences.mean()
    left = float(np.square(rest).sum()) / ((seeds - 1) * (rows - 1)) / (seeds * rows)
    by_seed = float(over_seeds.var(ddof=1)) / seeds
    by_row = float(over_rows.var(ddof=1)) / rows
    return math.sqrt(by_seed + max(by_row - left, 0.0))


def _augmented(
    values: Float[np.ndarray, " rows"], ones: float, zeros: float, z: float, *, opposite: float = 0.0
) -> tuple[float, float]:
    """The normal interval of the mean after ones, zeros and minus ones were added to the values."""
    count = len(values) + ones + zeros + opposite
    mean = (float(np.sum(values)) + ones - opposite) / count
    variance = (float(np.sum(np.square(values))) + ones + opposite) / count - mean * mean
    half = z * math.sqrt(max(variance, 0.0) / count)
    return mean - half, mean + half


def _quantile(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)
