"""The paper's output directions: label, conditional, safe and complete, with the compensation that links them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpkd.geometry.cone import project_safe_cone, safe_threshold
from tpkd.geometry.inputs import check_labels, check_pair, class_indices
from tpkd.geometry.split import Split, insert_target, split


@dataclass(frozen=True)
class Directions:
    """Logit-space directions of each example; a training step subtracts them."""

    label: Float[Tensor, "*batch K"]
    """h, the gradient of the label loss."""
    conditional: Float[Tensor, "*batch K"]
    """u, the gradient of the conditional loss."""
    safe: Float[Tensor, "*batch K"]
    """d, the nearest direction to u that lowers no margin."""
    update: Float[Tensor, "*batch K"]
    """v = h + beta d."""
    compensation: Float[Tensor, "*batch"]
    """l = -d_y, the push on the correct class that pays for the safe direction."""
    clipped_mass: Float[Tensor, "*batch K"]
    """lambda_j, how much of the teacher's request for class j was clipped; 0 at the label."""
    pure_conditional: Float[Tensor, "*batch K"]
    """w_cond = d - l a_0, the part of d that changes relations among incorrect classes."""


def directions(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Int[Tensor, "*batch"],
    *,
    beta: float = 0.5,
) -> Directions:
    """Every direction of the protected update at the student's current output.

    Paper: eq:core, d = argmin_{x in K_y} ||x - u|| and v = h + beta d with beta = 1/2. A class that both networks rule
    out, by a logit of -inf, counts as if it were not there: every direction is zero at it.

    Shapes: logits `(*batch, K)`, labels `(*batch)`; every field is `(*batch, K)` except `compensation` `(*batch)`.

    Example:
        >>> student, teacher = torch.tensor([[4.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]])
        >>> step = directions(student, teacher, torch.tensor([0]))
        >>> step.update
        tensor([[-0.1521,  0.2234, -0.0712]])
        >>> step.compensation
        tensor([0.1768])
    """
    check_beta(beta)
    z, zt, y = check_pair(student_logits, teacher_logits, labels)
    student, teacher = split(z, y), split(zt, y)
    h = label_direction(student, y)
    difference = conditional_difference(student, teacher)
    zero = torch.zeros_like(student.log_odds)
    zeta = safe_threshold(zero, difference)
    safe_others = difference.maximum(zeta.unsqueeze(-1))
    d = insert_target(safe_others, zeta, y)
    compensation = zero - zeta
    return Directions(
        label=h,
        conditional=insert_target(difference, zero, y),
        safe=d,
        update=h + beta * d,
        compensation=compensation,
        clipped_mass=insert_target(safe_others - difference, zero, y),
        pure_conditional=insert_target(safe_others - _shared_out(compensation, student, teacher), zero, y),
    )


def conditional_difference(student: Split, teacher: Split) -> Float[Tensor, "*batch others"]:
    """r - q of two split predictions; see `accurate_difference`.

    Example:
        >>> labels = torch.tensor([0])
        >>> certain, more_certain = torch.tensor([[0.0, 30.0, 0.0]]), torch.tensor([[0.0, 40.0, 0.0]])
        >>> conditional_difference(split(certain, labels), split(more_certain, labels))
        tensor([[-9.3572e-14,  9.3572e-14]])
        >>> student, shifted = torch.tensor([[0.0, 0.1, 0.2]]), torch.tensor([[5.0, 7.1, 7.2]])
        >>> conditional_difference(split(student, labels), split(shifted, labels))
        tensor([[0., 0.]])
    """
    log_r, log_q = student.log_conditional, teacher.log_conditional
    return accurate_difference(log_r, log_q, log_r.exp(), log_q.exp())


def accurate_difference(
    log_r: Float[Tensor, "*batch M"],
    log_q: Float[Tensor, "*batch M"],
    r: Float[Tensor, "*batch M"],
    q: Float[Tensor, "*batch M"],
) -> Float[Tensor, "*batch M"]:
    """The difference of two distributions, given with their logs, whose coordinates sum to zero however small they are.

    Where one class holds nearly all of both distributions its own difference cancels to nothing, although it is what
    all the others add up to: the class with most mass in both takes minus their sum. What is too small to have all its
    digits counts as zero, and so does a whole row in which the two are equal up to rounding: what is left there has no
    direction, and a share of it would depend on the processor.

    Example:
        >>> r, q = torch.tensor([1.0, 2e-9]), torch.tensor([1.0, 5e-9])
        >>> accurate_difference(r.log(), q.log(), r, q)
        tensor([ 3.0000e-09, -3.0000e-09])
    """
    difference = r - q
    difference = difference.masked_fill(difference.abs() < torch.finfo(r.dtype).tiny, 0.0)
    heaviest = r.minimum(q).argmax(-1, keepdim=True)
    others_sum = difference.scatter(-1, heaviest, 0.0).sum(-1, keepdim=True)
    difference = difference.scatter(-1, heaviest, (-others_sum).clamp(-1, 1))
    return difference.masked_fill(_equal_up_to_rounding(log_r, log_q).unsqueeze(-1), 0.0)


_ROUNDINGS = 8
"""Units in the last place by which a log-probability may be off: those of its logit, of the maximum and of the sum."""


def _equal_up_to_rounding(
    log_r: Float[Tensor, "*batch others"], log_q: Float[Tensor, "*batch others"]
) -> Bool[Tensor, "*batch"]:
    """Whether two log-distributions differ by no more than the rounding of the logits that they come from."""
    rounding = _ROUNDINGS * torch.finfo(log_r.dtype).eps * (1 + log_r.abs())
    # Equal infinities differ by nan, an infinite one and a finite one by no rounding; a nan equals nothing.
    return ((log_r == log_q) | ((log_r - log_q).abs() <= rounding) & log_r.isfinite()).all(-1)


def check_beta(beta: float) -> None:
    """Refuse a negative or non-finite weight of the conditional direction."""
    try:
        fits = 0 <= beta < float("inf")
    except TypeError:
        fits = False
    if not fits:
        raise ValueError(f"beta: expected a nonnegative finite weight of the conditional direction, got {beta!r}")


def label_direction(student: Split, labels: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch K"]:
    """h = p - e_y of a split prediction, as (1 - rho)(-1, r): no entry is formed by a cancelling subtraction.

    Example:
        >>> labels = torch.tensor([0])
        >>> label_direction(split(torch.tensor([[0.5, 0.25, 0.25]]).log(), labels), labels)
        tensor([[-0.5000,  0.2500,  0.2500]])
    """
    residual = student.log_residual.exp()
    return insert_target((student.log_residual.unsqueeze(-1) + student.log_conditional).exp(), -residual, labels)


def clipped_teacher(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch K-1"]:
    """The part of the teacher's conditional distribution that the safe direction asks for.

    Paper: eq:clipped-core, q~_j = min(q_j, r_j + l); it sums to 1 - l and d = (-l, r - q~).

    Example:
        >>> student = torch.tensor([[0.4, 0.12, 0.18, 0.30]]).log()
        >>> teacher = torch.tensor([[0.4, 0.18, 0.192, 0.228]]).log()
        >>> clipped_teacher(student, teacher, torch.tensor([0]))
        tensor([[0.2500, 0.3200, 0.3800]])
    """
    z, zt, y = check_pair(student_logits, teacher_logits, labels)
    student, teacher = split(z, y), split(zt, y)
    difference = conditional_difference(student, teacher)
    compensation = -safe_threshold(torch.zeros_like(student.log_odds), difference)
    return teacher.log_conditional.exp().minimum(student.log_conditional.exp() + compensation.unsqueeze(-1))


def normalized_clipped_teacher(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch K-1"]:
    """The clipped teacher as a distribution: the target of the local loss whose gradient is the safe direction.

    Paper: appendix B, q-bar = q~ / (1 - l).

    Example:
        >>> student, teacher = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]])
        >>> normalized_clipped_teacher(student, teacher, torch.tensor([0]))
        tensor([[0.4586, 0.5414]])
    """
    clipped = clipped_teacher(student_logits, teacher_logits, labels)
    return clipped / clipped.sum(-1, keepdim=True)


def confidence_axis(
    labels: Int[Tensor, "*batch"], num_classes: int, *, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "*batch K"]:
    """a_0: the direction whose step raises every margin alike and leaves the conditional distribution unchanged.

    Paper: section 5.2, a_0 = (-1, 1/(K-1), ..., 1/(K-1)).

    Example:
        >>> confidence_axis(torch.tensor([1]), 3)
        tensor([[ 0.5000, -1.0000,  0.5000]])
    """
    labels = class_indices(labels)
    check_labels(labels, labels.shape, num_classes)
    axis = torch.full((*labels.shape, num_classes), 1 / (num_classes - 1), dtype=dtype, device=labels.device)
    return axis.scatter(-1, labels.unsqueeze(-1), -1.0)


def imitation_direction(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch K"]:
    """p - t, the gradient of full imitation.

    The label coordinate is taken as (1 - tau) - (1 - rho) where that loses fewer digits: when both are certain.

    Example:
        >>> student, teacher = torch.tensor([[0.5, 0.25, 0.25]]).log(), torch.tensor([[0.5, 0.4, 0.1]]).log()
        >>> imitation_direction(student, teacher, torch.tensor([0]))
        tensor([[ 0.0000, -0.1500,  0.1500]])
    """
    z, zt, y = check_pair(student_logits, teacher_logits, labels)
    student, teacher = split(z, y), split(zt, y)
    by_residual = teacher.log_residual.exp() - student.log_residual.exp()
    by_confidence = student.log_confidence.exp() - teacher.log_confidence.exp()
    target = torch.where(student.log_odds + teacher.log_odds > 0, by_residual, by_confidence)
    student_others = student.log_residual.unsqueeze(-1) + student.log_conditional
    teacher_others = teacher.log_residual.unsqueeze(-1) + teacher.log_conditional
    return insert_target(student_others.exp() - teacher_others.exp(), target, y)


def _shared_out(compensation: Tensor, student: Split, teacher: Split) -> Tensor:
    """l a_0 off the label: equal shares for the incorrect classes, none for one that both networks rule out."""
    is_there = student.log_conditional.maximum(teacher.log_conditional) != -torch.inf
    share = compensation.unsqueeze(-1) / is_there.sum(-1, keepdim=True)
    return torch.where(is_there, share, 0.0)


def _compensation_only(z: Tensor, zt: Tensor, y: Tensor, beta: float) -> Tensor:
    step = directions(z, zt, y)
    others = _shared_out(step.compensation, split(z, y), split(zt, y))
    return step.label + beta * insert_target(others, 0 - step.compensation, y)


_Direction = Callable[[Tensor, Tensor, Tensor, float], Tensor]

_NAMED: dict[str, _Direction] = {
    "ce": lambda z, zt, y, beta: directions(z, zt, y).label,
    "tpkd": lambda z, zt, y, beta: directions(z, zt, y, beta=beta).update,
    "tpkd-no-projection": lambda z, zt, y, beta: (s := directions(z, zt, y)).label + beta * s.conditional,
    "tpkd-no-ce": lambda z, zt, y, beta: beta * directions(z, zt, y).safe,
    "safe-full-kl": lambda z, zt, y, beta: (
        directions(z, zt, y).label + beta * project_safe_cone(imitation_direction(z, zt, y), y)
    ),
    "compensation-only": _compensation_only,
    "full-kl": lambda z, zt, y, beta: directions(z, zt, y).label + imitation_direction(z, zt, y),
}

DIRECTION_NAMES: tuple[str, ...] = tuple(_NAMED)


def named_direction(
    name: str,
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Int[Tensor, "*batch"],
    *,
    beta: float = 0.5,
) -> Float[Tensor, "*batch K"]:
    """The update direction of TPKD or of one of its controls.

    Paper: section 6.2 and appendix E.2: "ce" h; "tpkd" h + beta d; "tpkd-no-projection" h + beta u; "tpkd-no-ce"
    beta d; "safe-full-kl" h + beta P(p - t); "compensation-only" h + beta l a_0; "full-kl" h + (p - t).

    Shapes: logits `(*batch, K)`, labels `(*batch)`; returns `(*batch, K)`.

    Example:
        >>> student, teacher = torch.tensor([[4.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]])
        >>> named_direction("tpkd-no-ce", student, teacher, torch.tensor([0]))
        tensor([[-0.0884,  0.1768, -0.0884]])
    """
    if name not in _NAMED:
        raise ValueError(f"name: expected one of {', '.join(DIRECTION_NAMES)}, got {name!r}")
    check_beta(beta)
    z, zt, y = check_pair(student_logits, teacher_logits, labels)
    return _NAMED[name](z, zt, y, beta)
