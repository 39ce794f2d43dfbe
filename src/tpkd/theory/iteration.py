"""Output iterations: what protected steps and label steps reach, how fast, and what each step is certain to gain."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from tpkd.geometry.constants import (
    OUTPUT_STEP_LIMIT,
    coefficient_constant,
    general_step_limit,
    retention_bound,
)
from tpkd.geometry.correct import check_pair, one_class
from tpkd.geometry.directions import directions, named_direction
from tpkd.geometry.inputs import check_positive
from tpkd.geometry.split import without_shift
from tpkd.theory.dynamics import joint_potential, potential_gradient
from tpkd.theory.pair import largest_count, per_count
from tpkd.theory.vectors import inner


def output_iteration(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    *,
    step_size: float,
    num_steps: int,
    direction: str = "tpkd",
    beta: float = 0.5,
    temperature: float = 1.0,
) -> Float[Tensor, "steps *batch K"]:
    """The outputs of repeated steps z - step_size * direction(z), the start included.

    Paper: thm:convergence. From finite logits and with a positive q, "tpkd" with beta = 1/2 and steps up to 4/5 takes
    the confidence to 1, r to the teacher's q and the direction to 0 in the limit; "ce" with steps up to 1/20 takes the
    confidence to 1 and r to the uniform distribution. EXTENSIONS 3: "tpkd" does so at every temperature. EXTENSIONS 1:
    with a soft label s, and steps up to `tpkd.geometry.general_step_limit` where 4 w beta gamma_{K,m} > 1 for some w,
    it takes p to s and r to q.

    Args:
        student_logits: `(*batch, K)`, the finite start.
        teacher_logits: `(*batch, K)`, fixed.
        labels: `(*batch)`, or probabilities `(*batch, K)`.
        step_size: the constant output step.
        num_steps: how many steps to take.
        direction: a name of `tpkd.geometry.named_direction`.
        beta: weight of the conditional direction.
        temperature: that of the conditional direction.

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
        step = named_direction(direction, path[-1], zt, y, beta=beta, temperature=temperature)
        path.append(path[-1] - step_size * step)
    return torch.stack(path)


@dataclass(frozen=True)
class DescentCertificate:
    """The fall of the potential in one step, and the part of it that is certain beforehand."""

    decrease: Float[Tensor, "*batch"]
    certain: Float[Tensor, "*batch"]


def descent_certificate(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    step_size: float,
    *,
    temperature: float = 1.0,
) -> DescentCertificate:
    """What one protected step takes off the joint potential, and what it is certain to take off.

    Paper: eq:descentcertificate, Phi(z) - Phi(z - eta v) >= (eta gamma_K / 4) ||g_Phi||^2 + eta (1 - 5 eta / 4) ||v||^2
    for 0 < eta <= 4/5. EXTENSIONS 3: of Phi_T = 4 L_CE + T^2 KL(q_T || r_T), at every temperature. For beta = 1/2 and
    one correct class only; for the rest there is `general_descent_certificate`.

    Shapes: logits `(*batch, K)`, labels `(*batch)`; every field is `(*batch)`.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> step = descent_certificate(student, teacher, torch.tensor([0]), 0.8)
        >>> step.decrease >= step.certain
        tensor([True])
    """
    _check_step("step_size", step_size, OUTPUT_STEP_LIMIT)
    labels = one_class("the descent certificate of weight one half", labels, student_logits.shape)
    z, zt, y = check_pair(student_logits, teacher_logits, labels)
    z = without_shift(z, y)
    gamma = retention_bound(z.shape[-1])
    g = potential_gradient(z, zt, y, temperature=temperature)
    v = directions(z, zt, y, temperature=temperature).update
    slack = 1 - step_size / OUTPUT_STEP_LIMIT
    before, after = (joint_potential(x, zt, y, temperature=temperature) for x in (z, z - step_size * v))
    return DescentCertificate(
        decrease=before - after,
        certain=step_size * gamma / 4 * inner(g, g) + step_size * slack * inner(v, v),
    )


def general_descent_certificate(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    step_size: float,
    *,
    label_weight: float,
    beta: float,
    temperature: float = 1.0,
) -> DescentCertificate:
    """What one step of h + beta d takes off label_weight * L_CE + L_cond, and what it is certain to take off.

    Paper: eq:general-coefficient-descent, at least (eta c_{w,beta} / 2)(||h||^2 + ||u||^2) for steps up to
    `tpkd.geometry.general_step_limit`. EXTENSIONS 1 and 3: the same at every temperature, and with gamma_{K,m} for m
    correct classes; the step must fit the largest m of the batch.

    Shapes: logits `(*batch, K)`, labels `(*batch)` or probabilities `(*batch, K)`; every field is `(*batch)`.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> step = general_descent_certificate(student, teacher, torch.tensor([0]), 0.02, label_weight=2.0, beta=1.0)
        >>> step.decrease >= step.certain
        tensor([True])
    """
    z, zt, y = check_pair(student_logits, teacher_logits, labels)
    z, num_classes = without_shift(z, y), z.shape[-1]
    _check_step("step_size", step_size, general_step_limit(label_weight, beta, num_classes, largest_count(y)))
    step = directions(z, zt, y, beta=beta, temperature=temperature)
    before, after = (
        joint_potential(x, zt, y, label_weight=label_weight, temperature=temperature)
        for x in (z, z - step_size * step.update)
    )
    residual = inner(step.label, step.label) + inner(step.conditional, step.conditional)
    certain = per_count(lambda m: step_size * coefficient_constant(label_weight, beta, num_classes, m) / 2, y, residual)
    return DescentCertificate(before - after, certain * residual)


@dataclass(frozen=True)
class Residuals:
    """Squared norms of the three learning signals of each example."""

    joint: Float[Tensor, "*batch"]
    """||g_Phi||^2."""
    label: Float[Tensor, "*batch"]
    """||h||^2, at most ||g_Phi||^2 / 8, with m correct classes (m + 1) ||g_Phi||^2 / 16."""
    conditional: Float[Tensor, "*batch"]
    """||u||^2, at most 6 ||g_Phi||^2, with m correct classes (2 m + 4) ||g_Phi||^2."""


def squared_residuals(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    *,
    temperature: float = 1.0,
) -> Residuals:
    """How large the joint, the label and the conditional signal still are.

    Paper: appendix C.2, ||h||^2 <= ||g_Phi||^2 / 8 and ||u||^2 <= 6 ||g_Phi||^2, at every temperature. EXTENSIONS 1,
    with m correct classes: h sums to -(1 - rho) on them, where g_Phi is 4 h, so ||h||^2 <= (m + 1) ||g_Phi||^2 / 16 and
    ||u||^2 <= (2 m + 4) ||g_Phi||^2.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> squared_residuals(student, teacher, torch.tensor([0])).label
        tensor([0.0158])
    """
    step = directions(student_logits, teacher_logits, labels, temperature=temperature)
    g = potential_gradient(student_logits, teacher_logits, labels, temperature=temperature)
    return Residuals(inner(g, g), inner(step.label, step.label), inner(step.conditional, step.conditional))


def residual_sum_bound(
    initial_potential: Float[Tensor, "*batch"], step_size: float, num_classes: int
) -> Float[Tensor, "*batch"]:
    """A bound on the sum of ||g_Phi||^2 over any number of protected steps.

    Paper: eq:residual-rate, 4 Phi(z_0) / (eta gamma_K), for beta = 1/2, one correct class and every temperature.

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
