"""The losses beyond the paper in plain NumPy loops, one row at a time: an independent truth."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tpkd.geometry import TopK

TEMPERATURES = (0.5, 1.0, 2.0, 4.0, 10.0)


def log_softmax(values: np.ndarray) -> np.ndarray:
    top = values.max()
    return values - top - np.log(np.exp(values - top).sum())


def threshold(u: np.ndarray, correct: int) -> float:
    """The root of sum_j min(u_j - a, 0) = correct * a, by bisection."""
    low, high = min(u.min(), 0.0), 0.0
    for _ in range(200):
        middle = (low + high) / 2
        too_low = np.minimum(u - middle, 0.0).sum() > correct * middle
        low, high = (middle, high) if too_low else (low, middle)
    return (low + high) / 2


@dataclass
class Expected:
    """The loss of each row, and its direction."""

    losses: Tensor
    directions: Tensor


def expected_rows(student: Tensor, teacher: list, shares: Tensor, beta: float, temperature: float) -> Expected:
    """`teacher` has for every row the logits to learn from and the classes that it speaks of."""
    losses, directions = [], []
    for z, (zt, spoken), s in zip(student.double().numpy(), teacher, shares.double().numpy(), strict=True):
        correct = s > 0
        log_p = log_softmax(z)
        taught = np.array([j for j in range(len(z)) if not correct[j] and spoken[j]])
        u, divergence = np.zeros(len(z)), 0.0
        if len(taught) and zt[taught].max() > -np.inf:  # else the teacher gives all to the label
            log_r, log_q = log_softmax(z[taught] / temperature), log_softmax(zt[taught] / temperature)
            u[taught] = temperature * (np.exp(log_r) - np.exp(log_q))
            terms = [np.exp(b) * (b - a) for a, b in zip(log_r, log_q, strict=True) if b > -np.inf]
            divergence = temperature**2 * sum(terms)
        zeta = threshold(u[~correct], int(correct.sum()))
        d = np.where(correct, zeta, np.maximum(u, zeta))
        losses.append(-(s[correct] * log_p[correct]).sum() + beta * divergence)
        directions.append(np.exp(log_p) - s + beta * d)
    return Expected(torch.tensor(np.array(losses)), torch.tensor(np.array(directions)))


def expected_soft(
    student: Tensor, teacher: Tensor, shares: Tensor, beta: float = 0.5, temperature: float = 1.0
) -> Expected:
    everything = np.ones(student.shape[-1], dtype=bool)
    whole = [(row, everything) for row in teacher.double().numpy()]
    return expected_rows(student, whole, shares, beta, temperature)


def expected_top_k(
    student: Tensor, top_k: TopK, labels: Tensor, beta: float = 0.5, temperature: float = 1.0
) -> Expected:
    completed = [completed_row(student[i].double().numpy(), top_k[i], int(labels[i])) for i in range(len(labels))]
    shares = torch.nn.functional.one_hot(labels, student.shape[-1])
    return expected_rows(student, completed, shares, beta, temperature)


def completed_row(z: np.ndarray, top_k: TopK, label: int) -> tuple[np.ndarray, np.ndarray]:
    """The completed teacher of one row, class by class, and the classes that it speaks of."""
    known: dict[int, float] = {}
    for index, value in zip(top_k.indices.tolist(), top_k.log_probs.double().tolist(), strict=True):
        if index >= 0:
            known[index] = np.exp(value)
    if top_k.label_log_probs is not None and not np.isnan(top_k.label_log_probs.item()):
        known[label] = np.exp(top_k.label_log_probs.double().item())
    rest = [j for j in range(len(z)) if j not in known]
    teacher = np.zeros(len(z))
    for index, value in known.items():
        teacher[index] = value
    if label not in known:
        spoken = np.isin(np.arange(len(z)), list(known))
        return _log(teacher), spoken
    if rest:
        left = 1 - sum(known.values())
        if top_k.rest_log_probs is not None:
            left = np.exp(top_k.rest_log_probs.double().item())
        own = np.exp(z[rest] - z[rest].max())
        teacher[rest] = max(left, 0.0) * own / own.sum()
    return _log(teacher), np.ones(len(z), dtype=bool)


def _log(values: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(values)


def soft_labels(rows: int, num_classes: int, most: int, seed: int = 0) -> Tensor:
    """Probabilities on one class up to `most` of them."""
    generator = torch.Generator().manual_seed(seed)
    shares = torch.zeros(rows, num_classes, dtype=torch.float64)
    for row in range(rows):
        count = 1 + row % min(most, num_classes - 2)
        chosen = torch.randperm(num_classes, generator=generator)[:count]
        shares[row, chosen] = torch.rand(count, generator=generator, dtype=torch.float64) + 0.05
    return shares / shares.sum(-1, keepdim=True)


def truncated(teacher: Tensor, labels: Tensor, k: int, *, label: bool = True, rest: bool = True) -> TopK:
    """The top k of a teacher, with the label's and the rest from before any rounding."""
    log_probs = teacher.double().log_softmax(-1)
    top = log_probs.topk(k)
    given = torch.zeros_like(log_probs, dtype=torch.bool).scatter(-1, top.indices, True)
    given = given.scatter(-1, labels.unsqueeze(-1), True) if label else given
    left = log_probs.masked_fill(given, -torch.inf).logsumexp(-1)
    return TopK(
        top.values,
        top.indices,
        log_probs.gather(-1, labels.unsqueeze(-1)).squeeze(-1) if label else None,
        left if rest else None,
    )
