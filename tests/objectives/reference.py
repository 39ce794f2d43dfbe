"""Every objective by its definition, in NumPy and loops, one example at a time."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax

import oracles

Array = np.ndarray


def imitation(z: Array, zt: Array, temperature: float = 1.0) -> float:
    """T^2 KL(t^T || p^T)."""
    return temperature**2 * oracles.imitation_loss(z / temperature, zt / temperature)


def target_part(z: Array, zt: Array, y: int, temperature: float) -> float:
    """T^2 TCKD from the two-outcome distributions themselves."""
    p, t = softmax(z / temperature), softmax(zt / temperature)
    pairs = [(t[y], p[y]), (np.delete(t, y).sum(), np.delete(p, y).sum())]
    return temperature**2 * sum(a * np.log(a / b) for a, b in pairs)


def non_target_part(z: Array, zt: Array, y: int, temperature: float) -> float:
    """T^2 NCKD."""
    return temperature**2 * oracles.conditional_loss(z / temperature, zt / temperature, y)


def dkd(z: Array, zt: Array, y: int, *, alpha: float = 1.0, beta: float = 8.0, temperature: float = 4.0) -> float:
    return alpha * target_part(z, zt, y, temperature) + beta * non_target_part(z, zt, y, temperature)


def double_softmax(z: Array, y: int) -> float:
    return -log_softmax(softmax(z))[y]


def partition_target(zt: Array, z0: Array, y: int | None) -> Array:
    """The teacher's logits where it is strictly surer, else the frozen student's."""
    confidences = [softmax(v).max() if y is None else softmax(v)[y] for v in (zt, z0)]
    return zt if confidences[0] > confidences[1] else z0


def bernoulli_kl(a: float, b: float) -> float:
    return a * np.log(a / b) + (1 - a) * np.log((1 - a) / (1 - b))


def binary_kl_norm(a: Array, zt: Array, temperature: float = 2.0) -> float:
    """T^2 times the divergence of a fair coin from sigmoid((a - zt)/T), summed over classes."""
    return temperature**2 * sum(bernoulli_kl(0.5, expit(d / temperature)) for d in a - zt)


def binary_kl(a: Array, zt: Array, temperature: float = 2.0) -> float:
    """T^2 sum_k KL(Ber(sigmoid(zt/T)) || Ber(sigmoid(a/T)))."""
    pairs = zip(zt / temperature, a / temperature, strict=True)
    return temperature**2 * sum(bernoulli_kl(expit(t), expit(s)) for t, s in pairs)


def feature_distance(projected: Array, teacher: Array) -> float:
    """Mean smooth L1 distance to the layer-normalised teacher feature (1e-5 is layer norm's own constant)."""
    target = (teacher - teacher.mean()) / np.sqrt(teacher.var() + 1e-5)
    return float(np.mean([0.5 * d**2 if d < 1 else d - 0.5 for d in np.abs(projected - target)]))


def value(name: str, z: Array, zt: Array, y: int, beta: float = 0.5) -> float:
    """What the loss of TPKD or of a control shows."""
    ce, conditional = oracles.label_loss(z, y), oracles.conditional_loss(z, zt, y)
    return {
        "tpkd": ce + beta * conditional,
        "tpkd-no-projection": ce + beta * conditional,
        "tpkd-no-ce": beta * conditional,
        "safe-full-kl": ce + beta * oracles.imitation_loss(z, zt),
        "compensation-only": ce,
    }[name]


def direction(name: str, z: Array, zt: Array, y: int, beta: float = 0.5) -> Array:
    """What the gradient of TPKD or of a control must be; projections by non-negative least squares."""
    parts = oracles.directions(z, zt, y)
    h, u, d = parts["label"], parts["conditional"], parts["safe"]
    axis = np.full(len(z), 1 / (len(z) - 1))
    axis[y] = -1.0
    return {
        "tpkd": h + beta * d,
        "tpkd-no-projection": h + beta * u,
        "tpkd-no-ce": beta * d,
        "safe-full-kl": h + beta * oracles.project(softmax(z) - softmax(zt), y),
        "compensation-only": h - beta * d[y] * axis,
    }[name]


def min_norm(gradients: Array) -> Array:
    """The weights of the shortest convex combination, by a general-purpose solver from several starts."""
    n = len(gradients)
    gram = gradients @ gradients.T
    gram = gram / np.diag(gram).max()
    starts = [np.full(n, 1 / n), *(0.8 * np.eye(n) + 0.2 / n)]
    solutions = [
        minimize(
            lambda w: 0.5 * w @ gram @ w,
            start,
            jac=lambda w: gram @ w,
            bounds=[(0, 1)] * n,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": lambda w: np.ones(n)},
            method="SLSQP",
            options={"ftol": 1e-16, "maxiter": 500},
        )
        for start in starts
    ]
    return min(solutions, key=lambda s: s.fun).x
