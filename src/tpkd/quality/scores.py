"""Scores of a classifier's answers: negative log-likelihood, Brier score, calibration, risk and coverage.

Values are per example; each score reduces them once.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Num

from tpkd.quality.record import ReliabilityBin

BINS = 15
"""Bins of the expected calibration error, as in Guo et al. 2017."""
CURVE_POINTS = 50
"""Points of a risk–coverage curve that are kept."""


@dataclass(frozen=True)
class RowScores:
    """What is known about each example, in the order of the logits.

    In log space, so that a network that is nearly sure of everything still has an order.
    """

    predictions: Int[np.ndarray, " rows"]
    """The class with the largest logit; of equal ones the first."""
    log_misses: Float[np.ndarray, " rows"]
    """log(1 - p_max): the log-probability of all other classes together."""
    log_losses: Float[np.ndarray, " rows"]
    """Negative log-probability of the label, in nats."""
    margins: Float[np.ndarray, " rows"]
    """Least margin: the logit of the label minus the largest other one; negative where the answer is wrong."""
    squares: Float[np.ndarray, " rows"]
    """Sum of the squared probabilities."""

    @property
    def confidences(self) -> Float[np.ndarray, " rows"]:
        """The probability of the class that was given."""
        return np.asarray(-np.expm1(self.log_misses))

    @property
    def brier(self) -> Float[np.ndarray, " rows"]:
        """Squared distance between the probabilities and the label as a one-hot vector, in [0, 2]."""
        # (1 - p_y)^2 replaces p_y^2 in the sum of squares.
        return np.asarray(np.maximum(self.squares - 2 * np.exp(-self.log_losses) + 1, 0.0))


def score_rows(logits: Num[np.ndarray, "rows classes"], labels: Int[np.ndarray, " rows"]) -> RowScores:
    """Score every example in double precision.

    With p = softmax(z): log-loss = -log p_y, Brier = sum_j (p_j - [j = y])^2, confidence = max_j p_j.

    Example:
        >>> rows = score_rows(np.log([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]]), np.array([0, 1]))
        >>> rows.predictions.tolist(), rows.confidences.round(3).tolist()
        ([0, 2], [0.5, 0.8])
        >>> rows.brier.round(3).tolist(), np.exp(-rows.log_losses).round(3).tolist()
        ([0.375, 1.46], [0.5, 0.1])
        >>> np.exp(rows.margins).round(3).tolist()
        [2.0, 0.125]
    """
    shifted = logits.astype(np.float64)
    with np.errstate(invalid="ignore"):  # an infinite logit gives NaN, which whoever reads files refuses
        shifted -= shifted.max(-1, keepdims=True)
    places, predictions = np.arange(len(labels)), shifted.argmax(-1)
    exps = np.exp(shifted)
    sums = exps.sum(-1)
    squares = np.square(exps / sums[:, None]).sum(-1)
    log_sums = np.log(sums)
    exps[places, predictions] = 0.0
    with np.errstate(divide="ignore"):  # where the others have no probability at all
        log_misses = np.log(exps.sum(-1)) - log_sums
    label_logits = shifted[places, labels]
    shifted[places, labels] = -np.inf
    margins = label_logits - shifted.max(-1)
    return RowScores(predictions, log_misses, log_sums - label_logits, margins, squares)


def reliability(
    confidences: Float[np.ndarray, " rows"], correct: Num[np.ndarray, " rows"], *, bins: int = BINS
) -> tuple[ReliabilityBin, ...]:
    """Mean confidence and accuracy in bins of equal width over (0, 1]; a bin includes its upper end.

    Example:
        >>> found = reliability(np.array([0.2, 0.9, 1.0]), np.array([0, 1, 1]), bins=2)
        >>> [(each.examples, each.confidence, each.accuracy) for each in found]
        [(1, 0.2, 0.0), (2, 0.95, 1.0)]
    """
    place = np.clip(np.ceil(confidences * bins).astype(int) - 1, 0, bins - 1)
    counts = np.bincount(place, minlength=bins)
    sums = [np.bincount(place, weights=values, minlength=bins) for values in (confidences, correct)]
    return tuple(
        ReliabilityBin(int(count), float(sure / count) if count else None, float(right / count) if count else None)
        for count, sure, right in zip(counts, *sums, strict=True)
    )


def calibration_error(bins: tuple[ReliabilityBin, ...]) -> float:
    """Expected calibration error: mean over examples of |accuracy - confidence| of their bin.

    ECE = sum_b (n_b / n) |accuracy_b - confidence_b| (Naeini et al. 2015, Guo et al. 2017).

    Example:
        >>> round(calibration_error((ReliabilityBin(1, 0.2, 0.0), ReliabilityBin(3, 0.9, 1.0))), 6)
        0.125
    """
    gaps = [
        each.examples * abs(each.accuracy - each.confidence)
        for each in bins
        if each.accuracy is not None and each.confidence is not None
    ]
    return sum(gaps) / sum(each.examples for each in bins)


def expected_errors(
    confidences: Float[np.ndarray, " rows"], correct: Num[np.ndarray, " rows"]
) -> Float[np.ndarray, " rows"]:
    """Number of errors among the k most confident examples, for k = 1 … n.

    Equal confidences have no order. Their errors are spread evenly over them, which is the expectation over all
    orders, so the result does not depend on the order of the data.

    Example:
        >>> expected_errors(np.array([0.9, 0.5, 0.5]), np.array([1, 0, 1])).tolist()
        [0.0, 0.5, 1.0]
    """
    _, group, sizes = np.unique(-confidences, return_inverse=True, return_counts=True)
    wrong = np.bincount(group, weights=1.0 - correct)
    return np.cumsum(np.repeat(wrong / sizes, sizes))


def risk_coverage_area(errors: Float[np.ndarray, " rows"]) -> float:
    """Area under the risk–coverage curve: the error rate among the k most confident examples, averaged over k.

    AURC = (1/n) sum_k errors_k / k (Geifman et al. 2019). Answering the k examples it is surest of, a classifier
    covers k/n of them at that risk. Lower is better; without any order the area is the error rate.

    Example:
        >>> risk_coverage_area(np.array([0.0, 0.5, 1.0])).__round__(4)
        0.1944
    """
    return float(np.mean(errors / np.arange(1, len(errors) + 1)))


def coverage_at_risk(errors: Float[np.ndarray, " rows"], risk: float = 0.01) -> float:
    """Largest share of examples, taken by confidence, with at most this share of errors among them.

    Example:
        >>> coverage_at_risk(np.array([0.0, 0.0, 1.0, 1.0]), 0.25)
        1.0
        >>> coverage_at_risk(np.array([0.0, 0.0, 1.0, 2.0]), 0.25)
        0.5
    """
    within = np.flatnonzero(errors <= risk * np.arange(1, len(errors) + 1))
    return float((within[-1] + 1) / len(errors)) if len(within) else 0.0


def risk_curve(
    errors: Float[np.ndarray, " rows"], points: int = CURVE_POINTS
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Coverage and risk at equally spaced coverages up to 1, at most one point per example.

    Example:
        >>> risk_curve(np.array([0.0, 0.5, 1.0, 1.0]), points=2)
        ((0.5, 1.0), (0.25, 0.25))
    """
    total = len(errors)
    steps = min(points, total)
    counts = np.ceil(np.arange(1, steps + 1) * total / steps - 1e-9).astype(int)
    return tuple((counts / total).tolist()), tuple((errors[counts - 1] / counts).tolist())


def class_accuracies(
    predictions: Int[np.ndarray, " rows"], labels: Int[np.ndarray, " rows"], num_classes: int
) -> Float[np.ndarray, " classes"]:
    """Share of each class's examples that are answered correctly; NaN for a class without examples.

    Example:
        >>> class_accuracies(np.array([0, 1, 1]), np.array([0, 0, 1]), 3).tolist()
        [0.5, 1.0, nan]
    """
    counts = np.bincount(labels, minlength=num_classes)
    right = np.bincount(labels[predictions == labels], minlength=num_classes)
    rates = np.full(num_classes, np.nan)
    np.divide(right, counts, out=rates, where=counts > 0)
    return rates


def confusion_counts(
    predictions: Int[np.ndarray, " rows"], labels: Int[np.ndarray, " rows"], num_classes: int
) -> dict[tuple[int, int], int]:
    """How often each wrong answer was given for each label: (label, answer) -> count, without a K × K table.

    Example:
        >>> confusion_counts(np.array([1, 1, 0]), np.array([0, 0, 0]), 3)
        {(0, 1): 2}
    """
    wrong = predictions != labels
    pairs, counts = np.unique(labels[wrong].astype(np.int64) * num_classes + predictions[wrong], return_counts=True)
    return {divmod(int(pair), num_classes): int(count) for pair, count in zip(pairs, counts, strict=True)}
