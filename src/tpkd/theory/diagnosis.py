"""What can this teacher still teach this student, and at what price: every answer about an output in one pass."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpkd.geometry.cone import least_prefix_mean
from tpkd.geometry.constants import PAPER_BETA, POTENTIAL_LABEL_WEIGHT
from tpkd.geometry.directions import accurate_difference, check_beta
from tpkd.geometry.divergences import binary_kl_divergence
from tpkd.theory.blocking import pair_is_blocked
from tpkd.theory.compensation import pair_transfer_cost
from tpkd.theory.pair import Pair, first_place, split_pair
from tpkd.theory.vectors import inner


@dataclass(frozen=True)
class Diagnosis:
    """The state of each example between its student and its teacher; losses and costs in nats."""

    blocked: Bool[Tensor, "*batch"]
    """No prediction that keeps every margin imitates the teacher more closely (theorem 1)."""
    confidence: Float[Tensor, "*batch"]
    """rho, the student's probability of the label."""
    teacher_confidence: Float[Tensor, "*batch"]
    """tau, the teacher's probability of the label."""
    label_loss: Float[Tensor, "*batch"]
    """-log rho."""
    imitation_loss: Float[Tensor, "*batch"]
    """KL(t || p)."""
    conditional_loss: Float[Tensor, "*batch"]
    """KL(q || r), what is left to learn of the relations among incorrect classes."""
    transfer_cost: Float[Tensor, "*batch"]
    """D_inf(q || r), the least rise in log-odds at which all of it can be had with no margin lowered (theorem 2)."""
    min_confidence: Float[Tensor, "*batch"]
    """a_min, the confidence after that rise."""
    compensation: Float[Tensor, "*batch"]
    """l, the push of the safe direction on the correct class."""
    retention: Float[Tensor, "*batch"]
    """u'd / ||u||^2, the share of first-order conditional descent that protection keeps; 1 where r = q (theorem 3)."""
    update_cosine: Float[Tensor, "*batch"]
    """cos(g_Phi, v), how well the protected step points down the joint potential (theorem 4); 1 where both vanish."""
    num_classes: int
    """K."""

    def summary(self) -> dict[str, Any]:
        """Plain numbers over all examples; means over an empty set are None.

        Returns:
            `examples`, `num_classes`, `blocked_share`, `blocked` (means of `conditional_loss` and `transfer_cost` over
            the blocked examples) and `all` (the mean of every field).
        """
        values = {name: getattr(self, name).reshape(-1) for name in self.names()}
        blocked = values["blocked"]
        return {
            "examples": blocked.numel(),
            "num_classes": self.num_classes,
            "blocked_share": _mean(blocked),
            "blocked": {name: _mean(values[name][blocked]) for name in ("conditional_loss", "transfer_cost")},
            "all": {name: _mean(value) for name, value in values.items()},
        }

    def to_dict(self) -> dict[str, Any]:
        """Every field as plain lists and numbers."""
        return {"num_classes": self.num_classes} | {name: getattr(self, name).tolist() for name in self.names()}

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The per-example fields."""
        return tuple(field.name for field in fields(cls) if field.name != "num_classes")


def diagnose(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Int[Tensor, "*batch"],
    *,
    beta: float = PAPER_BETA,
) -> Diagnosis:
    """Everything the theory says about a student, its teacher and the labels, for each example.

    Paper: sections 3, 4 and 5 in one pass; each field agrees with the function of its own statement. `update_cosine`
    alone is of the step, and so of `beta`.

    Shapes: logits `(*batch, K)`, labels `(*batch)`; every field is `(*batch)`. Logits are looked at: probabilities are
    refused by argument, and a logit that is not finite by argument and row.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> state = diagnose(student, teacher, torch.tensor([0]))
        >>> state.blocked, state.transfer_cost, state.min_confidence
        (tensor([True]), tensor([0.6650]), tensor([0.9459]))
        >>> summary = state.summary()
        >>> summary["examples"], summary["blocked_share"], round(summary["blocked"]["conditional_loss"], 4)
        (1, 1.0, 0.1717)
    """
    check_beta(beta)
    pair = split_pair(student_logits, teacher_logits, labels)
    _check_finite("student_logits", student_logits)
    _check_finite("teacher_logits", teacher_logits)
    for name, logits in (("student_logits", student_logits), ("teacher_logits", teacher_logits)):
        if are_probabilities(logits):
            found = "probabilities (nonnegative, with sum 1)"
            raise ValueError(f"{name}: expected logits, got {found}; pass their logarithms")
    return diagnose_pair(pair, beta=beta)


def diagnose_pair(pair: Pair, *, beta: float = PAPER_BETA) -> Diagnosis:
    """`diagnose` of predictions that are split already and known to be finite."""
    student, teacher = pair.student, pair.teacher
    r, q = student.log_conditional.exp(), teacher.log_conditional.exp()
    difference = accurate_difference(student.log_conditional, teacher.log_conditional, r, q)
    zero = torch.zeros_like(student.log_odds)
    zeta = least_prefix_mean(zero, _ascending(difference))
    safe, compensation = difference.maximum(zeta.unsqueeze(-1)), zero - zeta
    conditional_loss = inner(q, pair.log_ratio).clamp(min=0)
    cost = pair_transfer_cost(pair)
    confidence_part = binary_kl_divergence(teacher.log_odds, student.log_odds)
    return Diagnosis(
        blocked=pair_is_blocked(pair),
        confidence=student.log_confidence.exp(),
        teacher_confidence=teacher.log_confidence.exp(),
        label_loss=zero - student.log_confidence,
        imitation_loss=confidence_part + teacher.log_residual.exp() * conditional_loss,
        conditional_loss=conditional_loss,
        transfer_cost=cost,
        min_confidence=(student.log_odds + cost).sigmoid(),
        compensation=compensation,
        retention=_retention(difference, safe),
        update_cosine=_update_cosine(pair, r, difference, safe, compensation, beta),
        num_classes=r.shape[-1] + 1,
    )


def _ascending(values: Tensor) -> Tensor:
    # NumPy's vectorised sort takes a tenth of the time of torch's, which also keeps where each value came from.
    if values.device.type == "cpu" and not values.requires_grad:
        return torch.from_numpy(np.sort(values.numpy(), axis=-1))
    return values.sort(-1).values


def _retention(difference: Tensor, safe: Tensor) -> Tensor:
    # u_y = 0, so the label coordinate adds nothing. Scaled first: squares of a nearly finished student underflow.
    scale = difference.abs().amax(-1, keepdim=True)
    u = difference / scale
    return torch.where(scale.squeeze(-1) > 0, inner(u, safe / scale) / inner(u, u), 1.0)


def _update_cosine(
    pair: Pair, r: Tensor, difference: Tensor, safe: Tensor, compensation: Tensor, beta: float
) -> Tensor:
    residual = pair.student.log_residual.exp()
    h = residual.unsqueeze(-1) * r
    gradient = _scaled(POTENTIAL_LABEL_WEIGHT * h + difference, -POTENTIAL_LABEL_WEIGHT * residual)
    update = _scaled(h + beta * safe, -residual - beta * compensation)
    cosine = _inner(gradient, update) / (_inner(gradient, gradient) * _inner(update, update)).sqrt()
    return torch.where(cosine.isnan(), 1.0, cosine)


_Vector = tuple[Tensor, Tensor]
"""A direction as its incorrect classes and its label coordinate: the cosine needs no K-wide copy."""


def _scaled(others: Tensor, target: Tensor) -> _Vector:
    scale = others.abs().amax(-1).maximum(target.abs())
    return others / scale.unsqueeze(-1), target / scale


def _inner(a: _Vector, b: _Vector) -> Tensor:
    return inner(a[0], b[0]) + a[1] * b[1]


def _mean(values: Tensor) -> float | None:
    return values.double().mean().item() if values.numel() else None


def are_probabilities(values: Float[Tensor, "*batch K"], dtype: torch.dtype | None = None) -> bool:
    """Whether every row, of at least one, is nonnegative and sums to 1, as no logits of a network do.

    Args:
        values: rows.
        dtype: the precision they were computed in, where it is not their own.

    Example:
        >>> are_probabilities(torch.tensor([[0.0, 0.2, 0.8]])), are_probabilities(torch.tensor([[0.0, 0.2, 0.9]]))
        (True, False)
    """
    tolerance = 1e-2 if (dtype or values.dtype) in (torch.float16, torch.bfloat16) else 1e-5
    if not values.numel() or not (values >= 0).all():
        return False
    return bool(((values.double().sum(-1) - 1).abs() <= tolerance).all())


def _check_finite(name: str, logits: Tensor) -> None:
    finite = logits.isfinite()
    if not finite.all():
        *row, column = (~finite).nonzero()[0].tolist()
        value = logits[(*row, column)].item()
        place = first_place(~finite.all(-1))
        raise ValueError(f"{name}: expected finite logits, got {value} at class {column} of {place}")
