"""Two numbers per pair of signals decide whether backpropagation keeps what the output direction promises."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from tpkd.geometry import (
    PAPER_BETA,
    POTENTIAL_LABEL_WEIGHT,
    conditional_distortion_limit,
    directions,
    joint_distortion_limit,
    retention_bound,
)
from tpkd.geometry.correct import one_class
from tpkd.parameter_space.vjp import BatchJacobian, Forward

_ROUNDING = 64 * torch.finfo(torch.float64).eps
"""Differences of two conditional probabilities below this are what log-softmax itself leaves in float64."""


@dataclass(frozen=True)
class PairCertificate:
    """How a network stretches one pair of stacked output signals, and what follows for their inner product."""

    min_stretch: float
    """m, the smallest eigenvalue of Q^T J J^T Q on the span of the pair."""
    max_stretch: float
    """M, the largest."""
    distortion_ratio: float
    """chi = M / m; infinite where the network loses a direction of the span."""
    limit: float
    """kappa, the ratio below which the number of classes alone makes the inner product positive."""
    cosine: float
    """c, the measured cosine of the two signals."""
    measured_limit: float
    """(1 + c) / (1 - c), the ratio below which this angle makes the inner product positive."""
    inner_product: float
    """<J^T U, beta J^T R> of the conditional pair, <J^T W, J^T V> of the joint pair: the first-order gain itself."""
    passes: bool
    """distortion_ratio < limit."""
    passes_measured: bool
    """cosine > 0 and distortion_ratio < measured_limit."""


@dataclass(frozen=True)
class Certificate:
    """Both certificates of a batch."""

    conditional: PairCertificate | None
    """On the span of (u, w_cond); None when no example has anything conditional left to learn."""
    joint: PairCertificate | None
    """On the span of (g_Phi, v); None when every direction is zero."""


@dataclass(frozen=True)
class BatchSignals:
    """The stacked output signals of a batch in float64, each row divided by sqrt(N)."""

    conditional: Float[Tensor, "N K"]
    """U, of the conditional gradients u."""
    pure_conditional: Float[Tensor, "N K"]
    """R, of the kept conditional parts w_cond."""
    potential: Float[Tensor, "N K"]
    """W, of the potential's gradients g_Phi = 4 h + u."""
    update: Float[Tensor, "N K"]
    """V, of the updates v = h + beta d."""


def certify(
    model: nn.Module,
    inputs: Any,
    teacher_logits: Float[Tensor, "N K"],
    labels: Shaped[Tensor, "..."],
    *,
    microbatch: int | None = None,
    forward: Forward | None = None,
    rank_tolerance: float = 1e-10,
    spectral_tolerance: float = 1e-12,
    beta: float = PAPER_BETA,
    temperature: float = 1.0,
) -> Certificate:
    """Whether a small parameter step of TPKD is certain to learn from the teacher, at this network and batch.

    Paper: thm:parameter, cor:relation-backprop, cor:kernel. With J = col(J_i) / sqrt(N), where the network is
    differentiable and for all steps that are small enough: if chi_c < kappa_c, TPKD reaches a strictly lower batch
    conditional loss than the equal step of its compensation alone; if chi_Phi < kappa_Phi, it strictly lowers the batch
    mean of Phi. How small, the bounds of `steps` say from a Lipschitz constant. Directions are computed in float64; the
    network runs in its own dtype and eval mode. The conditional limit holds for every positive `beta`; the joint one is
    that of `tpkd.geometry.joint_distortion_limit`, far smaller where `beta` is not the paper's 1/2. EXTENSIONS 3: the
    same at every temperature, with L_cond = T^2 KL(q_T || r_T). For one correct class per row; sets of several are
    refused.

    Args:
        model: any network; flags, buffers, gradients and the random state are as before afterwards.
        inputs: what `network_logits` takes: a tensor, or a tuple, list or mapping of tensors, rows first.
        teacher_logits: `(N, K)` with K >= 3.
        labels: `(N,)`.
        microbatch: rows of a forward and backward pass, to save memory; all by default. The result does not change.
        forward: `forward(model, inputs) -> logits`, for models whose output is not a tensor.
        rank_tolerance: sine of the angle below which a pair counts as dependent; its ratio is then 1.
        spectral_tolerance: share of the largest stretch at which the smallest counts as zero.
        beta: the weight of the conditional direction in v = h + beta d, positive.
        temperature: that of the conditional loss.

    Returns:
        `Certificate(conditional, joint)` of plain numbers, at the cost of four backward and one forward passes (two
        with micro-batches).

    Example:
        >>> model = torch.nn.Linear(2, 3, bias=False)
        >>> teacher = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 0.5]])
        >>> certificate = certify(model, torch.eye(2), teacher, torch.tensor([0, 1]))
        >>> round(certificate.conditional.distortion_ratio, 6), certificate.conditional.passes
        (1.0, True)
    """
    for name, tolerance in (("rank_tolerance", rank_tolerance), ("spectral_tolerance", spectral_tolerance)):
        if not 0 <= tolerance < 1:
            raise ValueError(f"{name}: expected a number from 0 to below 1, got {tolerance}")
    if not 0 < beta < math.inf:
        raise ValueError(f"beta: expected a positive finite weight of the conditional direction, got {beta!r}")
    jacobian = BatchJacobian(model, inputs, microbatch=microbatch, forward=forward)
    logits = jacobian.logits
    teacher, targets = teacher_logits.to(logits.device), labels.to(logits.device)
    signals = batch_signals(logits, teacher, targets, beta=beta, temperature=temperature)
    num_examples, num_classes = logits.shape
    left_to_learn = bool(signals.conditional.abs().amax() * math.sqrt(num_examples) > _ROUNDING * temperature)
    conditional = _Span.of(signals.conditional, signals.pure_conditional, rank_tolerance) if left_to_learn else None
    joint = _Span.of(signals.potential, signals.update, rank_tolerance)
    spans = [span for span in (conditional, joint) if span is not None]
    if not spans:
        return Certificate(None, None)
    grams = [gram / num_examples for gram in jacobian.grams([span.basis for span in spans])]
    if not all(gram.isfinite().all() for gram in grams):
        raise ValueError("model: expected finite vector-Jacobian products, got NaN or infinity")
    limits = conditional_distortion_limit(num_classes), joint_distortion_limit(num_classes, beta=beta)
    return Certificate(
        conditional.certificate(grams[0], limits[0], beta, spectral_tolerance) if conditional else None,
        joint.certificate(grams[-1], limits[1], 1.0, spectral_tolerance) if joint else None,
    )


def batch_signals(
    student_logits: Float[Tensor, "N K"],
    teacher_logits: Float[Tensor, "N K"],
    labels: Shaped[Tensor, "..."],
    *,
    beta: float = PAPER_BETA,
    temperature: float = 1.0,
) -> BatchSignals:
    """The two pairs of output signals whose fate under backpropagation decides about parameter learning.

    Paper: appendix D.2, (U, R) = col(u_i, w_cond,i) / sqrt(N) and (W, V) = col(g_Phi,i, v_i) / sqrt(N).

    Example:
        >>> signals = batch_signals(torch.tensor([[4.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]]), torch.tensor([0]))
        >>> signals.conditional
        tensor([[ 0.0000,  0.3535, -0.3535]], dtype=torch.float64)
    """
    for name, logits in (("student_logits", student_logits), ("teacher_logits", teacher_logits)):
        if logits.ndim != 2:
            raise ValueError(f"{name}: expected shape (N, K), got {tuple(logits.shape)}")
        if not logits.isfinite().all():
            raise ValueError(f"{name}: expected finite logits, got NaN or infinity")
    labels = one_class("the certificate of a parameter step", labels, student_logits.shape)
    student, teacher = student_logits.detach().double(), teacher_logits.detach().double()
    step = directions(student, teacher, labels, beta=beta, temperature=temperature)
    root = math.sqrt(len(student_logits))
    potential = POTENTIAL_LABEL_WEIGHT * step.label + step.conditional
    return BatchSignals(step.conditional / root, step.pure_conditional / root, potential / root, step.update / root)


def angle_bound(cosine: float, min_stretch: float, max_stretch: float) -> float:
    """The least cosine-like product a^T G b / (|a| |b|) that this angle and these stretches allow.

    Paper: eq:actual-angle-bound, ((1 + c) m - (1 - c) M) / 2; positive exactly when M / m < (1 + c) / (1 - c).

    Example:
        >>> angle_bound(0.5, 1.0, 2.0), angle_bound(0.5, 1.0, 3.0)
        (0.25, 0.0)
    """
    if not -1 <= cosine <= 1:
        raise ValueError(f"cosine: expected a number from -1 to 1, got {cosine}")
    if not 0 <= min_stretch <= max_stretch:
        raise ValueError(f"min_stretch, max_stretch: expected 0 <= min <= max, got {min_stretch} and {max_stretch}")
    return ((1 + cosine) * min_stretch - (1 - cosine) * max_stretch) / 2


@dataclass(frozen=True)
class StackedAlignment:
    """Three numbers in descending order; equality throughout is the tight case."""

    alignment: float
    """(1 + gamma_K) U^T R."""
    squared_norms: float
    """gamma_K |U|^2 + |R|^2."""
    norm_product: float
    """2 sqrt(gamma_K) |U| |R|."""


def stacked_conditional_alignment(
    student_logits: Float[Tensor, "N K"],
    teacher_logits: Float[Tensor, "N K"],
    labels: Shaped[Tensor, "..."],
    *,
    temperature: float = 1.0,
) -> StackedAlignment:
    """How the per-example alignment of u and w_cond carries over to a batch.

    Paper: eq:stacked-conditional-alignment, (1 + gamma_K) U^T R >= gamma_K |U|^2 + |R|^2 >= 2 sqrt(gamma_K) |U| |R|;
    hence cos(U, R) >= c_K for any batch, at every temperature.

    Example:
        >>> chain = stacked_conditional_alignment(
        ...     torch.tensor([[4.0, 1.0, 0.0, -2.0]]), torch.tensor([[1.0, 0.0, 1.0, 0.5]]), torch.tensor([0])
        ... )
        >>> chain.alignment >= chain.squared_norms >= chain.norm_product > 0
        True
    """
    signals = batch_signals(student_logits, teacher_logits, labels, temperature=temperature)
    U, R = signals.conditional, signals.pure_conditional
    gamma = retention_bound(U.shape[-1])
    return StackedAlignment(
        alignment=(1 + gamma) * (U * R).sum().item(),
        squared_norms=gamma * U.square().sum().item() + R.square().sum().item(),
        norm_product=2 * math.sqrt(gamma) * U.norm().item() * R.norm().item(),
    )


@dataclass(frozen=True)
class _Span:
    """An orthonormal basis of a pair's span, and the pair in it."""

    basis: Float[Tensor, "rank N K"]
    first: Float[Tensor, "rank"]
    second: Float[Tensor, "rank"]
    cosine: float
    measured_limit: float

    @classmethod
    def of(cls, first: Tensor, second: Tensor, rank_tolerance: float) -> "_Span | None":
        norms = first.norm(), second.norm()
        if not (norms[0] > 0 and norms[1] > 0):
            return None
        a, b = first / norms[0], second / norms[1]
        rest = b - (a * b).sum() * a
        rest = rest - (a * rest).sum() * a  # a second pass: the first leaves rounding along a, large for a small rest
        cosine = max(-1.0, min(1.0, (a * b).sum().item()))
        dependent = rest.norm().item() <= rank_tolerance
        basis = a.unsqueeze(0) if dependent else torch.stack([a, rest / rest.norm()])
        # |a + b|^2 / |a - b|^2 is (1 + c) / (1 - c) for unit vectors, without the cancellation in 1 - c.
        squares = (a + b).square().sum().item(), (a - b).square().sum().item()
        measured_limit = math.inf if dependent and cosine > 0 else squares[0] / squares[1]
        coefficients = [(basis * signal).sum((1, 2)) for signal in (first, second)]
        return cls(basis, coefficients[0], coefficients[1], cosine, measured_limit)

    def certificate(
        self, compressed: Float[Tensor, "rank rank"], limit: float, weight: float, spectral_tolerance: float
    ) -> PairCertificate:
        """Read the 2 x 2 (for a dependent pair 1 x 1) matrix Q^T G Q."""
        eigenvalues = torch.linalg.eigvalsh(compressed).clamp(min=0)
        smallest, largest = eigenvalues[0].item(), eigenvalues[-1].item()
        ratio = math.inf if smallest <= spectral_tolerance * largest else largest / smallest
        return PairCertificate(
            min_stretch=smallest,
            max_stretch=largest,
            distortion_ratio=ratio,
            limit=limit,
            cosine=self.cosine,
            measured_limit=self.measured_limit,
            inner_product=weight * (self.first @ compressed @ self.second).item(),
            passes=ratio < limit,
            passes_measured=self.cosine > 0 and ratio < self.measured_limit,
        )
