"""The protected loss as plain tensor code, for a compiler to fuse; no value is read.

What its threshold relies on is said in `tpkd_fast.py`.
"""

import functools

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from tpkd.objectives.injection import inject_direction
from tpkd.objectives.reduction import Rows

_GUESSES = (0.5, 0.625, 0.75, 0.875)
"""Shares of the least u, between which and the least u itself the root lies."""
_STEPS = 6
"""Newton's steps; each divides the residual of the equation times the slope, active classes + 1, by at least 4."""
_FEW, _STEPS_OF_FEW = 1024, 3
"""Classes of which so few can be active that half of the steps are enough."""


def traced_tpkd_loss(rows: Rows, *, beta: float) -> Float[Tensor, "rows"]:
    """The loss of every row, with its direction as the gradient.

    Example:
        >>> student = torch.tensor([[2.0, 0.5, -1.0, 0.0]])
        >>> teacher, labels = torch.tensor([[1.0, 0.0, 0.5, -1.0]]), torch.tensor([0])
        >>> valid = torch.tensor([True])
        >>> traced_tpkd_loss(Rows(student, {"teacher_logits": teacher}, labels, valid, labels.shape), beta=0.5)
        tensor([0.6084])
    """
    z, zt, y = rows.student.detach(), rows.others["teacher_logits"], rows.labels.unsqueeze(-1)
    is_label = torch.arange(z.shape[-1], device=z.device) == y
    masked = [torch.where(is_label, -torch.inf, logits) for logits in (z, zt)]
    largest_r, largest_q = (logits.amax(-1, keepdim=True) for logits in masked)
    exp_r, exp_q = (masked[0] - largest_r).exp(), (masked[1] - largest_q).exp()
    sum_r, sum_q = exp_r.sum(-1, keepdim=True), exp_q.sum(-1, keepdim=True)
    r, q = exp_r / sum_r, exp_q / sum_q
    log_ratio = (zt - largest_q) - (z - largest_r)
    expected = torch.where(q > 0, q * log_ratio, 0.0).sum(-1, keepdim=True)
    conditional = (expected + sum_r.log() - sum_q.log()).clamp_min(0.0)
    lag = (largest_r - z.gather(-1, y)) + sum_r.log()
    values = (softplus(lag, threshold=40.0) + beta * conditional).squeeze(-1)
    if not rows.student.requires_grad:
        return values
    u = r - q
    zeta = threshold_by_steps(u)
    residual = lag.sigmoid()
    others = residual * r + beta * torch.maximum(u, zeta)
    return inject_direction(rows.student, torch.where(is_label, beta * zeta - residual, others), values)


def threshold_by_steps(u: Float[Tensor, "rows K"]) -> Float[Tensor, "rows 1"]:
    """The root zeta, by a fixed number of steps from the best bound that a few guesses give.

    Example:
        >>> threshold_by_steps(torch.tensor([[-0.6, -0.1, 0.7]]))
        tensor([[-0.3000]])
    """
    least = u.amin(-1, keepdim=True)
    upper = functools.reduce(torch.minimum, (_next_bound(u, least * guess) for guess in _GUESSES))
    for _ in range(_STEPS_OF_FEW if u.shape[-1] <= _FEW else _STEPS):
        upper = torch.minimum(_next_bound(u, upper), upper)
    return upper


def _next_bound(u: Float[Tensor, "rows K"], guess: Float[Tensor, "rows 1"]) -> Float[Tensor, "rows 1"]:
    active = u < guess
    total = torch.where(active, u, 0.0).sum(-1, keepdim=True)
    return total / (active.sum(-1, keepdim=True, dtype=u.dtype) + 1)
