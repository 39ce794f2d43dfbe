"""Output iterations: what protected steps and label steps reach, how fast, and what each step is certain to gain."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tpkd.geometry.constants import (
    OUTPUT_STEP_LIMIT,
    coefficient_constant,
    general_step_limit,
    retention_bound,
)
from tpkd.geometry.correct import check_pair
from tpkd.geometry.directions import directions, named_direction
from tpkd.geometry.inputs import check_positive
from tpkd.geometry.split import without_shift
from tpkd.theory.dynamics import joint_potential, potential_gradient
from tpkd.theory.vectors import inner


def output_iteration(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Int[Tensor, "*batch"],
    *,
    step_size: float,
    num_steps: int,
    direction: str = "tpkd",
    beta: float = 0.5,
) -> Float[Tensor, "steps *batch K"]:
    """The outputs of repeated steps z - step_size * direction(z), the start included.

    Paper: thm:convergence. From finite logits and with a positive q, "tpkd" with beta = 1/2 and steps up to 4/5 takes
    the confidence to 1, r to the teacher's q and the direction to 0 in the limit; "ce" with steps up to 1/20 takes the
    confidence to 1 and r to the uniform distribution.

    Args:
        student_logits: `(*batch, K)`, the finite start.
        teacher_logits: `(*batch, K)`, fixed.
        labels: `(*batch)`.
        step_size: the constant output step.
        num_steps: how many steps to take.
        direction: a name of `tpkd.geometry.named_direction`.
        beta: weight of the conditional direction.

    Returns:
        Logits `(num_steps + 1, *batch, K)`.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> path = output_iteration(student, teacher, torch.tensor([0]), step_size=0.8, num_steps=200)
        >>> path[-1, 0, 1:].softmax(-1)
        tensor([0.4175, 0.5825])
    """
    check_positive("step_size", step_size)
    if num_steps < 0:
        raise ValueError(f"num_steps: expected a nonnegative count, got {num_steps}")
    z, zt, y = check_pair(student_logits, teacher_logits, labels)
    path = [z]
    for _ in range(num_steps):
        path.append(path[-1] - step_size * named_direction(direction, path[-1], zt, y, beta=beta))
    return torch.stack(path)


@dataclass(frozen=True)
class DescentCertificate:
    """The fall of the potential in one step, and the part of it that is certain beforehand."""

    decrease: Float[Tensor, "*batch"]
    certain: Float[Tensor, "*batch"]


def descent_certificate(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Int[Tensor, "*batch"],
    step_size: float,
) -> DescentCertificate:
    """What one protected step takes off the joint potential, and what it is certain to take off.

    Paper: eq:descentcertificate, Phi(z) - Phi(z - eta v) >= (eta gamma_K / 4) ||g_Phi||^2 + eta (1 - 5 eta / 4) ||v||^2
    for 0 < eta <= 4/5.

    Shapes: logits `(*batch, K)`, labels `(*batch)`; every field is `(*batch)`.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> step = descent_certificate(student, teacher, torch.tensor([0]), 0.8)
        >>> step.decrease >= step.certain
        tensor([True])
    """
    _check_step("step_size", step_size, OUTPUT_STEP_LIMIT)
    z, zt, y = check_pair(student_logits, teacher_logits, labels)
    z = without_shift(z, y)
    gamma = retention_bound(z.shape[-1])
    g, v = potential_gradient(z, zt, y), directions(z, zt, y).update
    slack = 1 - step_size / OUTPUT_STEP_LIMIT
    return DescentCertificate(
        decrease=joint_potential(z, zt, y) - joint_potential(z - step_size * v, zt, y),
        certain=step_size * gamma / 4 * inner(g, g) + step_size * slack * inner(v, v),
    )


def general_descent_certificate(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Int[Tensor, "*batch"],
    step_size: float,
    *,
    label_weight: float,
    beta: float,
) -> DescentCertificate:
    """What one step of h + beta d takes off label_weight * L_CE + L_cond, and what it is certain to take off.

    Paper: eq:general-coefficient-descent, at least (eta c_{w,beta} / 2)(||h||^2 + ||u||^2) for steps up to
    `tpkd.geometry.general_step_limit`.

    Shapes: logits `(*batch, K)`, labels `(*batch)`; every field is `(*batch)`.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> step = general_descent_certificate(student, teacher, torch.tensor([0]), 0.02, label_weight=2.0, beta=1.0)
        >>> step.decrease >= step.certain
        tensor([True])
    """
    z, zt, y = check_pair(student_logits, teacher_logits, labels)
    z, num_classes = without_shift(z, y), z.shape[-1]
    _check_step("step_size", step_size, general_step_limit(label_weight, beta, num_classes))
    step = directions(z, zt, y, beta=beta)
    before = joint_potential(z, zt, y, label_weight=label_weight)
    after = joint_potential(z - step_size * step.update, zt, y, label_weight=label_weight)
    residual = inner(step.label, step.label) + inner(step.conditional, step.conditional)
    constant = coefficient_constant(label_weight, beta, num_classes)
    return DescentCertificate(before - after, step_size * constant / 2 * residual)


@dataclass(frozen=True)
class Residuals:
    """Squared norms of the three learning signals of each example."""

    joint: Float[Tensor, "*batch"]
    """||g_Phi||^2."""
    label: Float[Tensor, "*batch"]
    """||h||^2, at most ||g_Phi||^2 / 8."""
    conditional: Float[Tensor, "*batch"]
    """||u||^2, at most 6 ||g_Phi||^2."""


def squared_residuals(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]
) -> Residuals:
    """How large the joint, the label and the conditional signal still are.

    Paper: appendix C.2, ||h||^2 <= ||g_Phi||^2 / 8 and ||u||^2 <= 6 ||g_Phi||^2.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> squared_residuals(student, teacher, torch.tensor([0])).label
        tensor([0.0158])
    """
    step = directions(student_logits, teacher_logits, labels)
    g = potential_gradient(student_logits, teacher_logits, labels)
    return Residuals(inner(g, g), inner(step.label, step.label), inner(step.conditional, step.conditional))


def residual_sum_bound(
    initial_potential: Float[Tensor, "*batch"], step_size: float, num_classes: int
) -> Float[Tensor, "*batch"]:
    """A bound on the sum of ||g_Phi||^2 over any number of protected steps.

    Paper: eq:residual-rate, 4 Phi(z_0) / (eta gamma_K).

    Example:
        >>> residual_sum_bound(torch.tensor([0.6]), 0.8, 3)
        tensor([4.])
    """
    _check_step("step_size", step_size, OUTPUT_STEP_LIMIT)
    return 4 * initial_potential / (step_size * retention_bound(num_classes))


def average_joint_residual_bound(
    initial_potential: Float[Tensor, "*batch"], step_size: float, num_classes: int, num_steps: int
) -> Float[Tensor, "*batch"]:
    """A bound on the mean of ||g_Phi||^2 over the first protected steps.

    Paper: eq:average-joint-residual, 4 Phi(z_0) / (eta gamma_K T).

    Example:
        >>> average_joint_residual_bound(torch.tensor([0.6]), 0.8, 3, 4)
        tensor([1.])
    """
    _check_steps(num_steps)
    return residual_sum_bound(initial_potential, step_size, num_classes) / num_steps


def average_component_residual_bound(
    initial_potential: Float[Tensor, "*batch"], step_size: float, num_classes: int, num_steps: int
) -> Float[Tensor, "*batch"]:
    """A bound on the mean of ||h||^2 + ||u||^2 / 12 over the first protected steps.

    Paper: eq:average-component-residual, 5 Phi(z_0) / (2 eta gamma_K T).

    Example:
        >>> average_component_residual_bound(torch.tensor([0.6]), 0.8, 3, 5)
        tensor([0.5000])
    """
    _check_steps(num_steps)
    return 5 / 8 * residual_sum_bound(initial_potential, step_size, num_classes) / num_steps


def _check_step(name: str, step_size: float, limit: float) -> None:
    if not 0 < step_size <= limit:
        raise ValueError(f"{name}: expected a positive step up to {limit:g}, got {step_size}")


def _check_steps(num_steps: int) -> None:
    if num_steps < 1:
        raise ValueError(f"num_steps: expected at least 1, got {num_steps}")
