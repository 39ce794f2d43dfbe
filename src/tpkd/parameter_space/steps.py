"""Parameter steps of TPKD and of its compensation alone: their gradients, what they reach, and how far they may go."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from tpkd.geometry import (
    PAPER_BETA,
    POTENTIAL_LABEL_WEIGHT,
    coefficient_constant,
    conditional_loss,
    directions,
    joint_cosine_bound,
    label_loss,
    retention_bound,
)
from tpkd.geometry.correct import one_class
from tpkd.geometry.inputs import check_positive
from tpkd.parameter_space.certificates import PairCertificate, angle_bound, batch_signals
from tpkd.parameter_space.vjp import BatchJacobian, Forward, displaced, network_logits


@dataclass(frozen=True)
class ParameterGradients:
    """Batch gradients over the entries of `trainable_parameters(model)`, in float64."""

    tpkd: Float[Tensor, "P"]
    """g_T, the gradient of the TPKD loss."""
    increment: Float[Tensor, "P"]
    """dg = g_T - g_C = beta J^T R, what TPKD adds to its compensation."""
    conditional: Float[Tensor, "P"]
    """The gradient J^T U of the batch conditional loss."""
    potential: Float[Tensor, "P"]
    """The gradient J^T W of Psi, the batch mean of Phi."""

    @property
    def compensation(self) -> Float[Tensor, "P"]:
        """g_C, the gradient of the compensation-only control."""
        return self.tpkd - self.increment


def parameter_gradients(
    model: nn.Module,
    inputs: Any,
    teacher_logits: Float[Tensor, "N K"],
    labels: Shaped[Tensor, "..."],
    *,
    microbatch: int | None = None,
    forward: Forward | None = None,
    beta: float = PAPER_BETA,
    temperature: float = 1.0,
) -> ParameterGradients:
    """The gradients that the statements about parameter steps compare.

    Paper: appendix D.2, g_T = J^T V, dg = beta J^T R with beta = 1/2, grad L_cond = J^T U and grad Psi = J^T W.
    Arguments are those of `certify`.

    Example:
        >>> model = torch.nn.Linear(2, 3)
        >>> gradients = parameter_gradients(model, torch.eye(2), torch.zeros(2, 3), torch.tensor([0, 1]))
        >>> gradients.tpkd.shape
        torch.Size([9])
    """
    jacobian = BatchJacobian(model, inputs, microbatch=microbatch, forward=forward)
    logits = jacobian.logits
    teacher, targets = teacher_logits.to(logits.device), labels.to(logits.device)
    signals = batch_signals(logits, teacher, targets, beta=beta, temperature=temperature)
    stacks = torch.stack([signals.update, beta * signals.pure_conditional, signals.conditional, signals.potential])
    return ParameterGradients(*jacobian.products(stacks / math.sqrt(len(logits))))


@dataclass(frozen=True)
class ParameterConclusions:
    """Where two parameter steps of equal size lead."""

    increment_norm: float
    """|dg|, nonzero where TPKD adds conditional learning to its compensation."""
    conditional_loss: float
    """Batch conditional loss after the TPKD step."""
    compensation_conditional_loss: float
    """Batch conditional loss after the step of compensation alone."""
    potential: float
    """Batch mean of Phi after the TPKD step."""
    initial_potential: float
    """Batch mean of Phi before it."""

    @property
    def learns_beyond_compensation(self) -> bool:
        """Conclusion (i): a nonzero increment, and a strictly lower conditional loss than by compensation alone."""
        return self.increment_norm > 0 and self.conditional_loss < self.compensation_conditional_loss

    @property
    def descends(self) -> bool:
        """Conclusion (ii): the step strictly lowers the batch mean of Phi."""
        return self.potential < self.initial_potential


def parameter_conclusions(
    model: nn.Module,
    inputs: Any,
    teacher_logits: Float[Tensor, "N K"],
    labels: Shaped[Tensor, "..."],
    step_size: float,
    *,
    microbatch: int | None = None,
    forward: Forward | None = None,
    beta: float = PAPER_BETA,
    temperature: float = 1.0,
) -> ParameterConclusions:
    """Take the two parameter steps and look: theta - eta g_T against theta - eta g_C, and against theta.

    Paper: eq:parameter-conclusions, (i) dg != 0 and L_cond(theta - eta g_T) < L_cond(theta - eta g_C), (ii)
    Psi(theta - eta g_T) < Psi(theta); both hold for small eta where `certify` passes. The parameters are put back.

    Example:
        >>> model = torch.nn.Linear(2, 3, dtype=torch.float64)
        >>> inputs, teacher = torch.eye(2, dtype=torch.float64), torch.tensor([[2.0, 9.0, 0.0], [0.0, 1.0, 9.0]])
        >>> seen = parameter_conclusions(model, inputs, teacher, torch.tensor([0, 1]), step_size=0.01)
        >>> seen.learns_beyond_compensation, seen.descends
        (True, True)
    """
    check_positive("step_size", step_size)
    passes: Any = {"microbatch": microbatch, "forward": forward}
    gradients = parameter_gradients(model, inputs, teacher_logits, labels, beta=beta, temperature=temperature, **passes)

    def losses(gradient: Tensor) -> tuple[float, float]:
        with displaced(model, -step_size * gradient):
            logits = network_logits(model, inputs, **passes).double()
        teacher, targets = teacher_logits.to(logits), labels.to(logits.device)
        conditional = conditional_loss(logits, teacher, targets, temperature=temperature).mean().item()
        return conditional, POTENTIAL_LABEL_WEIGHT * label_loss(logits, targets).mean().item() + conditional

    after, compensated = losses(gradients.tpkd), losses(gradients.compensation)
    _, initial_potential = losses(torch.zeros_like(gradients.tpkd))
    return ParameterConclusions(
        gradients.increment.norm().item(), after[0], compensated[0], after[1], initial_potential
    )


@dataclass(frozen=True)
class ShapeGain:
    """Lower bounds of |dg|^2, the larger one first."""

    by_pure_conditional: float
    """m_c beta^2 |R|^2."""
    by_conditional: float
    """m_c beta^2 gamma_K^2 |U|^2."""


def parameter_shape_gain(
    min_stretch: float,
    student_logits: Float[Tensor, "N K"],
    teacher_logits: Float[Tensor, "N K"],
    labels: Shaped[Tensor, "..."],
    *,
    beta: float = PAPER_BETA,
    temperature: float = 1.0,
) -> ShapeGain:
    """How much parameter gradient the kept conditional signal is certain to leave.

    Paper: eq:parameter-shape-gain, |dg|^2 >= m_c beta^2 |R|^2 >= m_c beta^2 gamma_K^2 |U|^2 with beta = 1/2 and m_c the
    `min_stretch` of the conditional certificate; the proof holds for every `beta`.

    Example:
        >>> gain = parameter_shape_gain(
        ...     1.0, torch.tensor([[4.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]]), torch.tensor([0])
        ... )
        >>> gain.by_pure_conditional >= gain.by_conditional > 0
        True
    """
    if not 0 <= min_stretch < math.inf:
        raise ValueError(f"min_stretch: expected a nonnegative finite number, got {min_stretch}")
    signals = batch_signals(student_logits, teacher_logits, labels, beta=beta, temperature=temperature)
    gamma = retention_bound(signals.update.shape[-1])
    return ShapeGain(
        by_pure_conditional=min_stretch * signals.pure_conditional.square().sum().item() * beta**2,
        by_conditional=min_stretch * gamma**2 * signals.conditional.square().sum().item() * beta**2,
    )


@dataclass(frozen=True)
class StepBound:
    """A change that is at most -gain * eta + curvature * eta^2 for a step of size eta."""

    gain: float
    curvature: float

    @property
    def step_limit(self) -> float:
        """The largest step for which half the gain is certain: the change is then at most -gain * eta / 2.

        Infinite where there is no curvature, as of a student with nothing left to learn, whom no step moves.
        """
        return self.gain / (2 * self.curvature) if self.curvature else math.inf

    def change(self, step_size: float) -> float:
        """The bound of the change at one step size.

        Example:
            >>> StepBound(gain=1.0, curvature=2.0).change(0.25)
            -0.125
        """
        return -self.gain * step_size + self.curvature * step_size**2


def explicit_parameter_step(
    certificate: PairCertificate,
    student_logits: Float[Tensor, "N K"],
    teacher_logits: Float[Tensor, "N K"],
    labels: Shaped[Tensor, "..."],
    *,
    lipschitz: float,
    beta: float = PAPER_BETA,
    temperature: float = 1.0,
) -> StepBound:
    """How far a TPKD parameter step may go and how much of Psi it then takes away, from the joint certificate alone.

    Paper: eq:explicit-parameter-step. Psi(theta - eta g_T) - Psi(theta) <= -eta mu E + 4 L M eta^2 E, so that
    eta <= mu / (8 M L) takes away at least eta mu E / 2; mu = ((1 + sqrt(gamma_K)) m - (1 - sqrt(gamma_K)) M) / 2 and
    E = mean(|h|^2 + |u|^2 / 12), if the gradient of Psi is `lipschitz` on the step segment. That is for beta = 1/2; for
    another `beta`, by appendix C.5, the change is at most -eta mu c E + L M C eta^2 E with E = mean(|h|^2 + |u|^2),
    c = c_{4,beta}, C = max(1, beta^2) and `joint_cosine_bound` in place of sqrt(gamma_K) in mu. At every temperature,
    with the certificate and the Lipschitz constant of Psi at that temperature.

    Example:
        >>> pair = PairCertificate(1.0, 2.0, 2.0, 13.93, 0.9, 19.0, 1.0, True, True)
        >>> logits, labels = torch.zeros(1, 3), torch.tensor([0])
        >>> round(explicit_parameter_step(pair, logits, logits, labels, lipschitz=1.0).step_limit, 5)
        0.04994
    """
    if not 0 < lipschitz < math.inf:
        raise ValueError(f"lipschitz: expected a positive finite constant, got {lipschitz}")
    labels = one_class("the bound of a parameter step", labels, student_logits.shape)
    student, teacher = student_logits.detach().double(), teacher_logits.detach().double()
    step = directions(student, teacher, labels, temperature=temperature)
    num_classes = step.label.shape[-1]
    cosine = joint_cosine_bound(num_classes, beta=beta)
    mu = angle_bound(cosine, certificate.min_stretch, certificate.max_stretch)
    if not mu > 0:
        raise ValueError(
            f"certificate: expected a joint certificate with distortion ratio below {certificate.limit:g}, "
            f"got {certificate.distortion_ratio:g}: no step is certain to descend"
        )
    h, u = step.label.square().sum(-1), step.conditional.square().sum(-1)
    if beta == PAPER_BETA:
        energy = (h + u / 12).mean().item()
        return StepBound(mu * energy, 4 * lipschitz * certificate.max_stretch * energy)
    energy = (h + u).mean().item()
    constant = coefficient_constant(POTENTIAL_LABEL_WEIGHT, beta, num_classes)
    return StepBound(mu * constant * energy, lipschitz * certificate.max_stretch * max(1.0, beta**2) * energy)
