"""Temperature scaling: the one number that makes the probabilities of a network fit labels best."""

import numpy as np
from jaxtyping import Float, Int, Num

from tpkd.quality.scores import score_rows

MOST = 100.0
"""Temperatures lie between 1/100 and 100: logits that are right on every label would go on to zero."""
_STEPS = 60


def fit_temperature(logits: Num[np.ndarray, "rows classes"], labels: Int[np.ndarray, " rows"]) -> float:
    """The temperature at which the mean negative log-likelihood of labels is least (Guo et al. 2017).

    argmin_T of -mean log softmax(z/T)_y. It is convex in a = 1/T, with the derivative mean(E_p[z] - z_y); Newton's
    steps are taken inside a bracket that halves where they leave it.

    Example:
        >>> probs = np.array([[0.75, 0.25]] * 4)
        >>> round(fit_temperature(3 * np.log(probs), np.array([0, 0, 0, 1])), 6)
        3.0
    """
    z = logits.astype(np.float64)
    z -= z.max(-1, keepdims=True)
    target = float(z[np.arange(len(labels)), labels].mean())
    low, high, a = 1 / MOST, MOST, 1.0
    for _ in range(_STEPS):
        slope, curvature = _derivatives(z, a, target)
        low, high = (a, high) if slope < 0 else (low, a)
        newton = a - slope / curvature if curvature > 0 else low
        following = newton if low < newton < high else (low * high) ** 0.5
        if abs(following - a) <= 1e-12 * a:
            break
        a = following
    return 1 / a


def _derivatives(z: Float[np.ndarray, "rows classes"], a: float, target: float) -> tuple[float, float]:
    probs = np.exp(a * z)
    probs /= probs.sum(-1, keepdims=True)
    first = (probs * z).sum(-1)
    second = (probs * np.square(z)).sum(-1)
    return float(first.mean()) - target, float((second - np.square(first)).mean())


def losses_at(
    logits: Num[np.ndarray, "rows classes"], labels: Int[np.ndarray, " rows"], temperature: float
) -> Float[np.ndarray, " rows"]:
    """Negative log-likelihood of each label at a temperature.

    Example:
        >>> losses_at(np.array([[2.0, 0.0]]), np.array([0]), 2.0).round(4).tolist()
        [0.3133]
    """
    return score_rows(np.asarray(logits, dtype=np.float64) / temperature, labels).log_losses
