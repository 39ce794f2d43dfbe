"""The paper's output directions: label, conditional, safe and complete, with the compensation that links them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from tpkd.geometry.cone import project_safe_cone, safe_threshold
from tpkd.geometry.correct import (
    as_wide,
    check_correct,
    check_pair,
    correct_mask,
    insert_target,
    is_set,
    num_correct,
)
from tpkd.geometry.inputs import check_positive
from tpkd.geometry.split import Split, log_within, split_checked
from tpkd.geometry.teaching import check_teaching, conditional_logs
from tpkd.geometry.top_k import TopK


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
    teacher_logits: Float[Tensor, "*batch K"] | TopK,
    labels: Shaped[Tensor, "..."],
    *,
    beta: float = 0.5,
    temperature: float = 1.0,
) -> Directions:
    """Every direction of the protected update at the student's current output.

    Paper: eq:core, d = argmin_{x in K_y} ||x - u|| and v = h + beta d with beta = 1/2. A class that both networks rule
    out, by a logit of -inf, counts as if it were not there: every direction is zero at it. EXTENSIONS 3: at a
    temperature u_T = T (r_T - q_T), the gradient of T^2 KL(q_T || r_T); h has none. EXTENSIONS 1: labels may be
    probabilities, whose support is the set of correct classes; then h = p - s. EXTENSIONS 2: the teacher may be a
    `TopK`, completed by the student.

    Shapes: logits `(*batch, K)`, labels `(*batch)` or `(*batch, K)`; every field is `(*batch, K)` except `compensation`
    `(*batch)`.

    Example:
        >>> student, teacher = torch.tensor([[4.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]])
        >>> step = directions(student, teacher, torch.tensor([0]))
        >>> step.update
        tensor([[-0.1521,  0.2234, -0.0712]])
        >>> step.compensation
        tensor([0.1768])
    """
    check_beta(beta)
    check_positive("temperature", temperature)
    z, zt, y = check_teaching(student_logits, teacher_logits, labels)
    h = label_direction(split_checked(z, y), z, y)
    log_r, log_q = conditional_logs(z, zt, y, temperature)
    difference = conditional_difference(log_r, log_q, temperature)
    zero = torch.zeros_like(difference[..., 0])
    zeta = safe_threshold(zero, difference, num_correct(y))
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
        pure_conditional=insert_target(safe_others - _shared_out(compensation, z, zt, y), zero, y),
    )


def conditional_difference(
    log_r: Float[Tensor, "*batch others"], log_q: Float[Tensor, "*batch others"], temperature: float = 1.0
) -> Float[Tensor, "*batch others"]:
    """T (r_T - q_T) of two conditional distributions; see `accurate_difference`.

    Example:
        >>> certain, more_certain = torch.tensor([[[30.0, 0.0]], [[40.0, 0.0]]]).log_softmax(-1)
        >>> conditional_difference(certain, more_certain)
        tensor([[-9.3572e-14,  9.3572e-14]])
        >>> student, shifted = torch.tensor([[[0.1, 0.2]], [[7.1, 7.2]]]).log_softmax(-1)
        >>> conditional_difference(student, shifted)
        tensor([[0., 0.]])
    """
    return temperature * accurate_difference(log_r, log_q, log_r.exp(), log_q.exp())


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


def label_direction(
    student: Split, logits: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."]
) -> Float[Tensor, "*batch K"]:
    """h = p - e_y of a split prediction, as (1 - rho)(-1, r): no entry is formed by a cancelling subtraction.

    For a soft label s it is p - s, on the set rho (p_y / rho - s_y) - (1 - rho) s_y.

    Example:
        >>> labels, logits = torch.tensor([0]), torch.tensor([[0.5, 0.25, 0.25]]).log()
        >>> label_direction(split_checked(logits, labels), logits, labels)
        tensor([[-0.5000,  0.2500,  0.2500]])
    """
    residual = student.log_residual.exp()
    others = (student.log_residual.unsqueeze(-1) + student.log_conditional).exp()
    h = insert_target(others, -residual, labels)
    if not is_set(labels):
        return h
    within = student.log_confidence.exp().unsqueeze(-1) * (log_within(logits, labels).exp() - labels)
    return torch.where(labels > 0, within - residual.unsqueeze(-1) * labels, h)


def clipped_teacher(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"] | TopK,
    labels: Shaped[Tensor, "..."],
) -> Float[Tensor, "*batch others"]:
    """The part of the teacher's conditional distribution that the safe direction asks for.

    Paper: eq:clipped-core, q~_j = min(q_j, r_j + l); it sums to 1 - l and d = (-l, r - q~). EXTENSIONS 1: with m
    correct classes it sums to 1 - m l, and is K wide with zeros on them.

    Example:
        >>> student = torch.tensor([[0.4, 0.12, 0.18, 0.30]]).log()
        >>> teacher = torch.tensor([[0.4, 0.18, 0.192, 0.228]]).log()
        >>> clipped_teacher(student, teacher, torch.tensor([0]))
        tensor([[0.2500, 0.3200, 0.3800]])
    """
    clipped, y = _clipped(student_logits, teacher_logits, labels)
    return as_wide(clipped, y, 0.0)


def _clipped(student_logits: Tensor, teacher_logits: Tensor | TopK, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The clipped teacher in the places of `drop_target`, and the checked labels."""
    z, zt, y = check_teaching(student_logits, teacher_logits, labels)
    log_r, log_q = conditional_logs(z, zt, y, 1.0)
    difference = conditional_difference(log_r, log_q)
    compensation = -safe_threshold(torch.zeros_like(difference[..., 0]), difference, num_correct(y))
    return log_q.exp().minimum(log_r.exp() + compensation.unsqueeze(-1)), y


def normalized_clipped_teacher(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"] | TopK,
    labels: Shaped[Tensor, "..."],
) -> Float[Tensor, "*batch others"]:
    """The clipped teacher as a distribution: the target of the local loss whose gradient is the safe direction.

    Paper: appendix B, q-bar = q~ / (1 - l).

    Example:
        >>> student, teacher = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]])
        >>> normalized_clipped_teacher(student, teacher, torch.tensor([0]))
        tensor([[0.4586, 0.5414]])
    """
    clipped, y = _clipped(student_logits, teacher_logits, labels)
    return as_wide(clipped / clipped.sum(-1, keepdim=True), y, 0.0)


def confidence_axis(
    labels: Shaped[Tensor, "..."], num_classes: int, *, dtype: torch.dtype = torch.float32
) -> Float[Tensor, "*batch K"]:
    """a_0: the direction whose step raises every margin alike and leaves the conditional distribution unchanged.

    Paper: section 5.2, a_0 = (-1, 1/(K-1), ..., 1/(K-1)). EXTENSIONS 1: -1 on a set of m classes, m / (K - m) outside.

    Example:
        >>> confidence_axis(torch.tensor([1]), 3)
        tensor([[ 0.5000, -1.0000,  0.5000]])
        >>> confidence_axis(torch.tensor([[True, True, False, False]]), 4)
        tensor([[-1., -1.,  1.,  1.]])
    """
    shape = labels.shape[:-1] if is_set(labels) else labels.shape
    correct = correct_mask(check_correct(labels, torch.Size([*shape, num_classes]), masks=True), num_classes)
    count = correct.sum(-1, keepdim=True, dtype=dtype)
    return torch.where(correct, -1.0, count / (num_classes - count))


def imitation_direction(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    *,
    temperature: float = 1.0,
) -> Float[Tensor, "*batch K"]:
    """p - t, the gradient of full imitation; at a temperature T (p_T - t_T).

    The label coordinate is taken as (1 - tau) - (1 - rho) where that loses fewer digits: when both are certain. Labels
    may be a mask or probabilities `(*batch, K)`, of which only the set of correct classes counts.

    Example:
        >>> student, teacher = torch.tensor([[0.5, 0.25, 0.25]]).log(), torch.tensor([[0.5, 0.4, 0.1]]).log()
        >>> imitation_direction(student, teacher, torch.tensor([0]))
        tensor([[ 0.0000, -0.1500,  0.1500]])
    """
    check_positive("temperature", temperature)
    z, zt, y = check_pair(student_logits, teacher_logits, labels, masks=True)
    if temperature != 1:
        z, zt = z / temperature, zt / temperature
    student, teacher = split_checked(z, y), split_checked(zt, y)
    by_residual = teacher.log_residual.exp() - student.log_residual.exp()
    by_confidence = student.log_confidence.exp() - teacher.log_confidence.exp()
    target = torch.where(student.log_odds + teacher.log_odds > 0, by_residual, by_confidence)
    student_others = student.log_residual.unsqueeze(-1) + student.log_conditional
    teacher_others = teacher.log_residual.unsqueeze(-1) + teacher.log_conditional
    direction = insert_target(student_others.exp() - teacher_others.exp(), target, y)
    if is_set(y):  # p_y - t_y, with the set's own difference and that of the proportions inside it
        inside, teacher_inside = log_within(z, y).exp(), log_within(zt, y).exp()
        correct = teacher_inside * target.unsqueeze(-1)
        correct = correct + student.log_confidence.exp().unsqueeze(-1) * (inside - teacher_inside)
        direction = torch.where(correct_mask(y, z.shape[-1]), correct, direction)
    return temperature * direction


def _shared_out(compensation: Tensor, z: Tensor, zt: Tensor | TopK, y: Tensor) -> Tensor:
    """l a_0 off the label: equal shares for the incorrect classes, none for one that both networks rule out."""
    log_r, log_q = conditional_logs(z, zt, y, 1.0)
    is_there = log_r.maximum(log_q) != -torch.inf
    share = (num_correct(y) * compensation).unsqueeze(-1) / is_there.sum(-1, keepdim=True)
    return torch.where(is_there, share, 0.0)


@dataclass(frozen=True)
class _Step:
    """The arguments of a named direction."""

    z: Tensor
    zt: Tensor | TopK
    y: Tensor
    beta: float
    temperature: float

    def all(self) -> Directions:
        return directions(self.z, self.zt, self.y, beta=self.beta, temperature=self.temperature)

    def imitation(self) -> Tensor:
        if isinstance(self.zt, TopK):
            raise ValueError("teacher_logits: expected all classes for full imitation, got a truncated teacher")
        return imitation_direction(self.z, self.zt, self.y, temperature=self.temperature)


def _compensation_only(step: _Step) -> Tensor:
    found = step.all()
    others = _shared_out(found.compensation, step.z, step.zt, step.y)
    return found.label + step.beta * insert_target(others, 0 - found.compensation, step.y)


_NAMED: dict[str, Callable[[_Step], Tensor]] = {
    "ce": lambda step: step.all().label,
    "tpkd": lambda step: step.all().update,
    "tpkd-no-projection": lambda step: (found := step.all()).label + step.beta * found.conditional,
    "tpkd-no-ce": lambda step: step.beta * step.all().safe,
    "safe-full-kl": lambda step: step.all().label + step.beta * project_safe_cone(step.imitation(), step.y),
    "compensation-only": _compensation_only,
    "full-kl": lambda step: step.all().label + step.imitation(),
}

DIRECTION_NAMES: tuple[str, ...] = tuple(_NAMED)


def named_direction(
    name: str,
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"] | TopK,
    labels: Shaped[Tensor, "..."],
    *,
    beta: float = 0.5,
    temperature: float = 1.0,
) -> Float[Tensor, "*batch K"]:
    """The update direction of TPKD or of one of its controls.

    Paper: section 6.2 and appendix E.2: "ce" h; "tpkd" h + beta d; "tpkd-no-projection" h + beta u; "tpkd-no-ce"
    beta d; "safe-full-kl" h + beta P(p - t); "compensation-only" h + beta l a_0; "full-kl" h + (p - t). EXTENSIONS 3:
    at a temperature u_T = T (r_T - q_T) takes the place of u, and T (p_T - t_T) that of p - t.

    Shapes: logits `(*batch, K)`, labels `(*batch)` or probabilities `(*batch, K)`; returns `(*batch, K)`.

    Example:
        >>> student, teacher = torch.tensor([[4.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]])
        >>> named_direction("tpkd-no-ce", student, teacher, torch.tensor([0]))
        tensor([[-0.0884,  0.1768, -0.0884]])
    """
    if name not in _NAMED:
        raise ValueError(f"name: expected one of {', '.join(DIRECTION_NAMES)}, got {name!r}")
    check_beta(beta)
    check_positive("temperature", temperature)
    z, zt, y = check_teaching(student_logits, teacher_logits, labels)
    return _NAMED[name](_Step(z, zt, y, beta, temperature))
