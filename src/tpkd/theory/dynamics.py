"""The joint potential of label and conditional learning, and how well the protected direction descends it."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from tpkd.geometry.constants import PAPER_BETA, POTENTIAL_LABEL_WEIGHT, coefficient_constant, retention_bound
from tpkd.geometry.correct import check_pair, is_set, one_class
from tpkd.geometry.directions import directions
from tpkd.geometry.divergences import conditional_loss, label_loss
from tpkd.geometry.inputs import check_positive
from tpkd.theory.pair import is_single, largest_count, per_count
from tpkd.theory.vectors import inner


def joint_potential(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    *,
    label_weight: float = POTENTIAL_LABEL_WEIGHT,
    temperature: float = 1.0,
) -> Float[Tensor, "*batch"]:
    """What is left of both kinds of learning, in one number.

    Paper: section 5.3, Phi = 4 L_CE + L_cond, which protected output steps of up to 4/5 lower; appendix C.5 puts w in
    place of 4, with steps of its own. EXTENSIONS 3: at a temperature Phi_T = w L_CE + T^2 KL(q_T || r_T). EXTENSIONS 1:
    with probabilities as labels L_CE is the soft cross-entropy, and the least value w times the label's entropy.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> joint_potential(student, teacher, torch.tensor([0]))
        tensor([0.5932])
    """
    check_positive("label_weight", label_weight)
    z, zt, y = check_pair(student_logits, teacher_logits, labels)
    return label_weight * label_loss(z, y) + conditional_loss(z, zt, y, temperature=temperature)


def potential_gradient(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    *,
    label_weight: float = POTENTIAL_LABEL_WEIGHT,
    temperature: float = 1.0,
) -> Float[Tensor, "*batch K"]:
    """The logit gradient of the joint potential.

    Paper: section 5.3, g_Phi = 4 h + u; appendix C.5 puts w in place of 4.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> potential_gradient(student, teacher, torch.tensor([0]))
        tensor([[-0.4000,  0.5633, -0.1633]])
    """
    check_positive("label_weight", label_weight)
    step = directions(student_logits, teacher_logits, labels, temperature=temperature)
    return label_weight * step.label + step.conditional


@dataclass(frozen=True)
class JointAlignment:
    """How the complete direction relates to the gradient of the potential."""

    inner_product: Float[Tensor, "*batch"]
    """g_Phi'v, the first-order descent."""
    lower_bound: Float[Tensor, "*batch"]
    """||v||^2 + (gamma_K / 4) ||g_Phi||^2 for beta = 1/2 and one correct class, elsewhere
    c_{4,beta} (||h||^2 + ||u||^2)."""
    cosine: Float[Tensor, "*batch"]
    """cos(g_Phi, v), for one correct class at least `tpkd.geometry.joint_cosine_bound`; 1 where both vanish."""


def joint_alignment(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    *,
    beta: float = PAPER_BETA,
    temperature: float = 1.0,
) -> JointAlignment:
    """How surely the protected direction descends the joint potential, at each example.

    Paper: eq:full-alignment, prop:full-alignment. g_Phi'v >= ||v||^2 + (gamma_K / 4) ||g_Phi||^2 and
    cos(g_Phi, v) >= sqrt(gamma_K), tight, for beta = 1/2. Another positive `beta` has the bound of appendix C.5,
    which is negative and says nothing where 16 beta gamma_K < 1. EXTENSIONS 3: the same at every temperature.
    EXTENSIONS 1: with m > 1 correct classes every `beta` has the bound of appendix C.5, with gamma_{K,m}; the paper's
    own needs a gamma of at least one half.

    Shapes: logits `(*batch, K)`, labels `(*batch)` or probabilities `(*batch, K)`; every field is `(*batch)`.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> joint_alignment(student, teacher, torch.tensor([0])).cosine
        tensor([0.9947])
    """
    step = directions(student_logits, teacher_logits, labels, beta=beta, temperature=temperature)
    gradient = POTENTIAL_LABEL_WEIGHT * step.label + step.conditional
    energy = inner(step.label, step.label) + inner(step.conditional, step.conditional)
    num_classes = student_logits.shape[-1]
    general = per_count(lambda m: _general_constant(beta, num_classes, m), labels, energy) * energy
    lower_bound = general
    if beta == PAPER_BETA:
        paper = inner(step.update, step.update) + retention_bound(num_classes) / 4 * inner(gradient, gradient)
        lower_bound = torch.where(is_single(labels), paper, general) if is_set(labels) else paper
    return JointAlignment(inner(gradient, step.update), lower_bound, _cosine(gradient, step.update))


def batch_alignment(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    *,
    beta: float = PAPER_BETA,
    temperature: float = 1.0,
) -> JointAlignment:
    """How surely the stacked protected directions of a batch descend the mean of the joint potential.

    Paper: eq:sector, with W = col(g_Phi_i) / sqrt(N) and V = col(v_i) / sqrt(N): the same bounds as for one example,
    with the constants of the largest number of correct classes in the batch.

    Shapes: logits `(*batch, K)`, labels `(*batch)` or probabilities `(*batch, K)`; every field is one number.

    Example:
        >>> student, teacher = torch.tensor([[4.0, 1.0, 0.0], [0.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]] * 2)
        >>> batch_alignment(student, teacher, torch.tensor([0, 1])).cosine > 0.866
        tensor(True)
    """
    step = directions(student_logits, teacher_logits, labels, beta=beta, temperature=temperature)
    scale = max(step.compensation.numel(), 1) ** -0.5
    W = scale * (POTENTIAL_LABEL_WEIGHT * step.label + step.conditional)
    energy = ((scale * step.label).square() + (scale * step.conditional).square()).sum()
    W, V, num_classes, m = (
        W.reshape(-1),
        scale * step.update.reshape(-1),
        student_logits.shape[-1],
        largest_count(labels),
    )
    if beta == PAPER_BETA and m == 1:
        lower_bound = inner(V, V) + retention_bound(num_classes) / 4 * inner(W, W)
    else:
        lower_bound = _general_constant(beta, num_classes, m) * energy
    return JointAlignment(inner(W, V), lower_bound, _cosine(W, V))


def _general_constant(beta: float, num_classes: int, num_correct: int) -> float:
    return coefficient_constant(POTENTIAL_LABEL_WEIGHT, beta, num_classes, num_correct)


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    # Scaled first: squares of a nearly finished student underflow. Both vectors vanish together, and cosine 0 / 0 is 1.
    scale_a, scale_b = a.abs().amax(-1, keepdim=True), b.abs().amax(-1, keepdim=True)
    a, b = a / scale_a, b / scale_b
    cosine = inner(a, b) / (inner(a, a) * inner(b, b)).sqrt()
    return torch.where((scale_a.minimum(scale_b) == 0).squeeze(-1), 1.0, cosine)


@dataclass(frozen=True)
class AlignmentExpansion:
    """The slack of the alignment bound as five terms, none of them negative (the last two are taken together)."""

    slack: Float[Tensor, "*batch"]
    """g_Phi'v - ||v||^2 - (gamma / 4) ||g_Phi||^2."""
    label_term: Float[Tensor, "*batch"]
    """(3 - 4 gamma) ||h||^2."""
    agreement_term: Float[Tensor, "*batch"]
    """2 (1 - gamma) h'd."""
    polar_term: Float[Tensor, "*batch"]
    """(1 - 2 gamma) h'e, with e = u - d."""
    kept_term: Float[Tensor, "*batch"]
    """(1 - gamma) ||d||^2 / 4."""
    removed_term: Float[Tensor, "*batch"]
    """-gamma ||e||^2 / 4, at most as large as the term before."""


def alignment_expansion(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    *,
    temperature: float = 1.0,
) -> AlignmentExpansion:
    """Why the protected direction descends the joint potential: the slack of the alignment bound, term by term.

    Paper: eq:alignment-expansion, for beta = 1/2: the slack is the sum of the five terms; it tends to 0 in the sharp
    case. At every temperature, and for one correct class only: (1 - 2 gamma) h'e is negative where gamma_{K,m} < 1/2.

    Shapes: logits `(*batch, K)`, labels `(*batch)`; every field is `(*batch)`.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> parts = alignment_expansion(student, teacher, torch.tensor([0]))
        >>> terms = parts.label_term + parts.agreement_term + parts.polar_term + parts.kept_term + parts.removed_term
        >>> torch.allclose(parts.slack, terms)
        True
    """
    labels = one_class("the expansion of the alignment", labels, student_logits.shape)
    step = directions(student_logits, teacher_logits, labels, temperature=temperature)
    gamma = retention_bound(student_logits.shape[-1])
    h, u, d = step.label, step.conditional, step.safe
    e = u - d
    aligned = joint_alignment(student_logits, teacher_logits, labels, temperature=temperature)
    return AlignmentExpansion(
        slack=aligned.inner_product - aligned.lower_bound,
        label_term=(3 - 4 * gamma) * inner(h, h),
        agreement_term=2 * (1 - gamma) * inner(h, d),
        polar_term=(1 - 2 * gamma) * inner(h, e),
        kept_term=(1 - gamma) / 4 * inner(d, d),
        removed_term=-gamma / 4 * inner(e, e),
    )


def ce_interaction(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    *,
    temperature: float = 1.0,
) -> Float[Tensor, "*batch"]:
    """What the label step does to the conditional loss at first order: positive where it helps.

    Paper: eq:ce-shape-interaction, u'h = (1 - rho)(||r - q||^2 + ||r||^2 - ||q||^2) / 2 = (1 - rho)(r - q)'r.
    EXTENSIONS 1 and 3: at a temperature (1 - rho) T (r_T - q_T)'r, and the same outside a set of correct classes.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> ce_interaction(student, teacher, torch.tensor([0]))
        tensor([0.0113])
    """
    step = directions(student_logits, teacher_logits, labels, temperature=temperature)
    return inner(step.conditional, step.label)


@dataclass(frozen=True)
class OwnDescent:
    """What one complete step does to its own conditional loss."""

    rate: Float[Tensor, "*batch"]
    """u'v = u'h + beta ||d||^2: positive where the step lowers the conditional loss at first order."""
    lower_bound: Float[Tensor, "*batch"]
    """-||h|| ||u|| + beta gamma_K ||u||^2; gamma_{K,m} with m correct classes."""


def own_descent(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    *,
    beta: float = PAPER_BETA,
    temperature: float = 1.0,
) -> OwnDescent:
    """The rate at which a complete step lowers its own conditional loss, and its bound.

    Paper: eq:own-shape-direction, u'v = u'h + beta ||d||^2 >= -||h|| ||u|| + beta gamma_K ||u||^2 with beta = 1/2; the
    proof holds for every `beta`, every temperature, and with gamma_{K,m} for m correct classes.

    Shapes: logits `(*batch, K)`, labels `(*batch)` or probabilities `(*batch, K)`; every field is `(*batch)`.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> own = own_descent(student, teacher, torch.tensor([0]))
        >>> own.rate >= own.lower_bound
        tensor([True])
    """
    step = directions(student_logits, teacher_logits, labels, beta=beta, temperature=temperature)
    h, u = step.label, step.conditional
    num_classes = student_logits.shape[-1]
    kept = per_count(lambda m: beta * retention_bound(num_classes, m), labels, u)
    return OwnDescent(
        rate=inner(u, step.update),
        lower_bound=kept * inner(u, u) - torch.linalg.vector_norm(h, dim=-1) * torch.linalg.vector_norm(u, dim=-1),
    )


@dataclass(frozen=True)
class OwnStepLimit:
    """Which complete steps are certain to lower their own conditional loss."""

    certain: Bool[Tensor, "*batch"]
    """||u|| > 0 and ||h|| / ||u|| < beta gamma_K; gamma_{K,m} with m correct classes."""
    step_limit: Float[Tensor, "*batch"]
    """4 u'v / ||v||^2; every smaller positive step lowers the conditional loss. 0 where `certain` is False."""


def own_step_limit(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    *,
    beta: float = PAPER_BETA,
    temperature: float = 1.0,
) -> OwnStepLimit:
    """The step sizes below which a complete step is certain to lower its own conditional loss.

    Paper: eq:own-shape-condition, ||u|| > 0, ||h|| / ||u|| < beta gamma_K and 0 < eta < 4 u'v / ||v||^2 with
    beta = 1/2; the proof holds for every `beta`, every temperature (the loss is T^2 KL(q_T || r_T)), and with
    gamma_{K,m} for m correct classes.

    Shapes: logits `(*batch, K)`, labels `(*batch)` or probabilities `(*batch, K)`; every field is `(*batch)`.

    Example:
        >>> student, teacher = torch.tensor([[9.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]])
        >>> own_step_limit(student, teacher, torch.tensor([0])).certain
        tensor([True])
    """
    step = directions(student_logits, teacher_logits, labels, beta=beta, temperature=temperature)
    num_classes = student_logits.shape[-1]
    scale = step.update.abs().amax(-1, keepdim=True)
    h, u, v = step.label / scale, step.conditional / scale, step.update / scale
    kept = per_count(lambda m: beta * retention_bound(num_classes, m), labels, u)
    certain = torch.linalg.vector_norm(h, dim=-1) < kept * torch.linalg.vector_norm(u, dim=-1)
    return OwnStepLimit(certain, torch.where(certain, 4 * inner(u, v) / inner(v, v), 0.0))
