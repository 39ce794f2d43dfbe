"""The protected loss as plain tensor code, for a compiler to fuse and for what goes beyond the paper; reads no value.

What its threshold relies on is said in `tpkd_fast.py`.
"""

import functools
from collections.abc import Callable

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn.functional import softplus

from tpkd.geometry.correct import correct_mask, is_set
from tpkd.geometry.teaching import completed_pair
from tpkd.geometry.top_k import TopK
from tpkd.objectives.injection import inject_direction

_GUESSES = (0.5, 0.625, 0.75, 0.875)
"""Shares of the least u, between which and the least u itself the root lies."""
_GUESSES_OF_SETS = (0.0625, 0.125, 0.25, *_GUESSES)
"""With m correct classes the root lies between 1 / (m + 1) of the least u and the least u."""
_STEPS = 6
"""Newton's steps; each divides the residual of the equation times the slope, active classes + 1, by at least 4."""
_FEW, _STEPS_OF_FEW = 1024, 3
"""Classes of which so few can be active that half of the steps are enough."""

Threshold = Callable[..., Float[Tensor, "rows 1"]]
"""From u, and the number of correct classes, to the root zeta."""


def traced_tpkd_loss(
    student: Float[Tensor, "rows K"],
    teacher: Float[Tensor, "rows K"] | TopK,
    labels: Shaped[Tensor, "..."],
    *,
    beta: float,
    temperature: float = 1.0,
) -> Float[Tensor, "rows"]:
    """The loss of every row, with its direction as the gradient.

    Example:
        >>> student = torch.tensor([[2.0, 0.5, -1.0, 0.0]])
        >>> teacher, labels = torch.tensor([[1.0, 0.0, 0.5, -1.0]]), torch.tensor([0])
        >>> traced_tpkd_loss(student, teacher, labels, beta=0.5)
        tensor([0.6084])
    """
    values, direction = plain_values_and_direction(
        student.detach(), teacher, labels, beta, temperature, student.requires_grad, threshold_by_steps
    )
    return values if direction is None else inject_direction(student, direction, values)


def plain_values_and_direction(
    z: Float[Tensor, "rows K"],
    teacher: Float[Tensor, "rows K"] | TopK,
    labels: Shaped[Tensor, "..."],
    beta: float,
    temperature: float,
    wanted: bool,
    threshold: Threshold,
) -> tuple[Float[Tensor, "rows"], Float[Tensor, "rows K"] | None]:
    """The loss of every row and its direction, where one is wanted; labels are classes, or probabilities `(rows, K)`.

    Example:
        >>> student, teacher = torch.tensor([[4.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]])
        >>> plain_values_and_direction(student, teacher, torch.tensor([0]), 0.5, 1.0, True, threshold_by_steps)[1]
        tensor([[-0.1521,  0.2234, -0.0712]])
    """
    T, is_correct = temperature, correct_mask(labels, z.shape[-1])
    masked = torch.where(is_correct, -torch.inf, z)
    if isinstance(teacher, TopK):
        student, zt = completed_pair(z, teacher, labels)
        taught = torch.where(is_correct, -torch.inf, student)
    else:
        zt, taught = teacher, masked
    largest, largest_q = (logits.amax(-1, keepdim=True) for logits in (masked, torch.where(is_correct, -torch.inf, zt)))
    exp_p, exp_q = (masked - largest).exp(), _over(torch.where(is_correct, -torch.inf, zt) - largest_q, T).exp()
    sum_p, sum_q = exp_p.sum(-1, keepdim=True), exp_q.sum(-1, keepdim=True)
    largest_r, exp_r, sum_r = largest, exp_p, sum_p
    if taught is not masked or T != 1:
        largest_r = taught.amax(-1, keepdim=True)
        exp_r = _over(taught - largest_r, T).exp()
        sum_r = exp_r.sum(-1, keepdim=True)
    r, q = exp_r / sum_r, exp_q / sum_q
    log_ratio = _over((zt - largest_q) - (z - largest_r), T)
    expected = torch.where(q > 0, q * log_ratio, 0.0).sum(-1, keepdim=True)
    conditional = (expected + sum_r.log() - sum_q.log()).clamp_min(0.0)
    joint, inside = _correct_logit(z, labels)
    lag = (largest - joint) + sum_p.log()
    values = (softplus(lag, threshold=40.0) + inside + beta * T**2 * conditional).squeeze(-1)
    if not wanted:
        return values, None
    u = _times(r - q, T)
    zeta = threshold(u, is_correct.sum(-1)) if is_set(labels) else threshold(u)
    residual = lag.sigmoid()
    others = residual * (exp_p / sum_p) + beta * torch.maximum(u, zeta)
    at_correct = beta * zeta - residual
    if is_set(labels):
        moved = (-lag).sigmoid() * ((z - joint).exp() - labels)
        at_correct = beta * zeta - residual * labels + moved
    return values, torch.where(is_correct, at_correct, others)


def _over(logits: Tensor, temperature: float) -> Tensor:
    return logits if temperature == 1 else logits / temperature


def _times(u: Tensor, temperature: float) -> Tensor:
    return u if temperature == 1 else temperature * u


def _correct_logit(z: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | float]:
    """The logit of all correct classes together, and the label loss among them."""
    if not is_set(labels):
        return z.gather(-1, labels.unsqueeze(-1)), 0.0
    joint = torch.where(labels > 0, z, -torch.inf).logsumexp(-1, keepdim=True)
    return joint, torch.where(labels > 0, labels * (joint - z), 0.0).sum(-1, keepdim=True)


def threshold_by_steps(u: Float[Tensor, "rows K"], correct: int | Int[Tensor, "rows"] = 1) -> Float[Tensor, "rows 1"]:
    """The root zeta, by a fixed number of steps from the best bound that a few guesses give.

    Example:
        >>> threshold_by_steps(torch.tensor([[-0.6, -0.1, 0.7]]))
        tensor([[-0.3000]])
    """
    least, one = u.amin(-1, keepdim=True), isinstance(correct, int)
    weight = correct if isinstance(correct, int) else correct.unsqueeze(-1)
    guesses = _GUESSES if one else _GUESSES_OF_SETS
    upper = functools.reduce(torch.minimum, (_next_bound(u, least * guess, weight) for guess in guesses))
    for _ in range(_STEPS_OF_FEW if one and u.shape[-1] <= _FEW else _STEPS):
        upper = torch.minimum(_next_bound(u, upper, weight), upper)
    return upper


def _next_bound(
    u: Float[Tensor, "rows K"], guess: Float[Tensor, "rows 1"], weight: int | Tensor
) -> Float[Tensor, "rows 1"]:
    active = u < guess
    total = torch.where(active, u, 0.0).sum(-1, keepdim=True)
    return total / (active.sum(-1, keepdim=True, dtype=u.dtype) + weight)
