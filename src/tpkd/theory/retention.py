"""How much of the teacher's conditional signal protection keeps, what it removes, and what the label side gains."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from tpkd.geometry.constants import PAPER_BETA, retention_bound
from tpkd.geometry.correct import as_wide, drop_target, is_set, least_correct, num_correct, over_batch
from tpkd.geometry.directions import directions, label_direction
from tpkd.geometry.divergences import label_loss
from tpkd.geometry.split import split_checked, without_shift
from tpkd.geometry.teaching import check_teaching
from tpkd.geometry.top_k import TopK
from tpkd.theory.pair import as_grid, is_single, per_count, weighed
from tpkd.theory.vectors import inner


@dataclass(frozen=True)
class Retention:
    """Theorem 3 of each example; shares and cosine are 1 where nothing is left to learn: r = q up to rounding."""

    descent_share: Float[Tensor, "*batch"]
    """u'd / ||u||^2, at least gamma_K, with m correct classes gamma_{K,m}."""
    norm_share: Float[Tensor, "*batch"]
    """||d||^2 / ||u||^2, equal to the above."""
    pure_share: Float[Tensor, "*batch"]
    """||w_cond||^2 / ||d||^2, at least the same."""
    cosine: Float[Tensor, "*batch"]
    """cos(u, w_cond), at least c_K, with m correct classes c_{K,m}."""


def retention(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"] | TopK,
    labels: Shaped[Tensor, "..."],
    *,
    temperature: float = 1.0,
) -> Retention:
    """What protection keeps of the conditional signal, and how much of that is conditional learning proper.

    Paper: eq:retention, thm:retention. u'd = ||d||^2 >= gamma_K ||u||^2 and ||w_cond||^2 >= gamma_K ||d||^2; both are
    tight, together. A share of nothing is 1: where r and q are equal up to rounding, no processor's last bit decides.
    EXTENSIONS: the same at every temperature, for truncated teachers, and with gamma_{K,m} for m correct classes.

    Shapes: logits `(*batch, K)`, labels `(*batch)`, or a mask or probabilities `(*batch, K)`; every field is
    `(*batch)`.

    Example:
        >>> student = torch.tensor([[0.4, 0.12, 0.18, 0.30]]).log()
        >>> teacher = torch.tensor([[0.4, 0.18, 0.192, 0.228]]).log()
        >>> kept = retention(student, teacher, torch.tensor([0]))
        >>> kept.descent_share, kept.cosine.acos().rad2deg()
        (tensor([0.7984]), tensor([11.5364]))
    """
    labels = weighed(labels, student_logits)
    step = directions(student_logits, teacher_logits, labels, temperature=temperature)
    # Scaled first: squares of a nearly finished student underflow. All three vectors vanish together.
    scale = step.conditional.abs().amax(-1, keepdim=True)
    u, d, w = step.conditional / scale, step.safe / scale, step.pure_conditional / scale
    uu, dd, ww = inner(u, u), inner(d, d), inner(w, w)

    def where_left(share: Tensor) -> Tensor:
        return torch.where(scale.squeeze(-1) == 0, 1.0, share)

    return Retention(
        descent_share=where_left(inner(u, d) / uu),
        norm_share=where_left(dd / uu),
        pure_share=where_left(ww / dd),
        cosine=where_left(inner(u, w) / (uu * ww).sqrt()),
    )


def relation_ball_slack(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"] | TopK,
    labels: Shaped[Tensor, "..."],
    *,
    temperature: float = 1.0,
) -> Float[Tensor, "*batch"]:
    """How far inside its ball the pure conditional part lies, in units of ||u||^2; 0 where r = q up to rounding.

    Paper: eq:relation-ball, prop:alignment. ||w_cond - (1 + gamma) u / 2||^2 <= (1 - gamma)^2 ||u||^2 / 4: up to
    rounding the slack is not negative. EXTENSIONS: with gamma_{K,m} for m correct classes; at every temperature.

    Example:
        >>> student, teacher = torch.tensor([[2.0, 1.0, 0.0, 3.0]]), torch.tensor([[1.0, 0.0, 0.5, 0.0]])
        >>> relation_ball_slack(student, teacher, torch.tensor([0])) >= 0
        tensor([True])
    """
    labels = weighed(labels, student_logits)
    step = directions(student_logits, teacher_logits, labels, temperature=temperature)
    num_classes = student_logits.shape[-1]
    scale = step.conditional.abs().amax(-1, keepdim=True)
    u, w = step.conditional / scale, step.pure_conditional / scale
    centre = per_count(lambda m: (1 + retention_bound(num_classes, m)) / 2, labels, u)
    radius = per_count(lambda m: (1 - retention_bound(num_classes, m)) ** 2 / 4, labels, u)
    offset = w - (centre.unsqueeze(-1) if isinstance(centre, Tensor) else centre) * u
    slack = radius - inner(offset, offset) / inner(u, u)
    return torch.where(scale.squeeze(-1) == 0, 0.0, slack)


@dataclass(frozen=True)
class RemovedSignal:
    """What protection takes out of the conditional first-order signal."""

    removed: Float[Tensor, "*batch"]
    """||u||^2 - u'd."""
    clipped: Float[Tensor, "*batch"]
    """m l^2 + sum_j lambda_j^2 with m correct classes, equal to the above."""
    active: Int[Tensor, "*batch"]
    """a, the number of clipped classes."""
    lower: Float[Tensor, "*batch"]
    """m l^2 (1 + m/a); 0 where nothing is clipped."""
    upper: Float[Tensor, "*batch"]
    """m (m + 1) l^2."""


def removed_signal(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"] | TopK,
    labels: Shaped[Tensor, "..."],
    *,
    temperature: float = 1.0,
) -> RemovedSignal:
    """The exact conditional signal that protection removes, and its bounds from the number of clipped classes.

    Paper: eq:exact-removed, eq:active-removed. ||u||^2 - u'd = l^2 + sum_j lambda_j^2, between l^2 (1 + 1/a) and 2 l^2
    for a clipped classes. Where r = q up to rounding nothing is clipped and every field is 0. EXTENSIONS 1, with m
    correct classes: lambda sums to m l, so the same is m l^2 + sum_j lambda_j^2, from m l^2 (1 + m/a) to m (m + 1) l^2.

    Shapes: logits `(*batch, K)`, labels `(*batch)`, or a mask or probabilities `(*batch, K)`; every field is
    `(*batch)`.

    Example:
        >>> student = torch.tensor([[0.4, 0.12, 0.18, 0.30]]).log()
        >>> teacher = torch.tensor([[0.4, 0.18, 0.192, 0.228]]).log()
        >>> removed_signal(student, teacher, torch.tensor([0])).active
        tensor([1])
    """
    labels = weighed(labels, student_logits)
    step = directions(student_logits, teacher_logits, labels, temperature=temperature)
    active = (step.clipped_mass > 0).sum(-1)
    m = num_correct(labels)
    squared = step.compensation.square()
    return RemovedSignal(
        removed=inner(step.conditional, step.conditional) - inner(step.conditional, step.safe),
        clipped=m * squared + inner(step.clipped_mass, step.clipped_mass),
        active=active,
        lower=torch.where(active > 0, m * squared + m * m * squared / active.clamp(min=1), 0.0),
        upper=m * (m + 1) * squared,
    )


@dataclass(frozen=True)
class CompensationBounds:
    """The compensation between its two bounds."""

    lower: Float[Tensor, "*batch"]
    """T TV(q_T, r_T) / (K - 1)."""
    compensation: Float[Tensor, "*batch"]
    """l."""
    upper: Float[Tensor, "*batch"]
    """T TV(q_T, r_T) / (m + 1)."""


def compensation_bounds(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"] | TopK,
    labels: Shaped[Tensor, "..."],
    *,
    temperature: float = 1.0,
) -> CompensationBounds:
    """The push on the correct class, and what the distance of the two conditional distributions says about it.

    Paper: appendix B.2, TV(q, r) / (K - 1) <= l <= TV(q, r) / 2, both tight; so l < 1/2. EXTENSIONS 1 and 3: with m
    correct classes and a temperature, T TV(q_T, r_T) / (K - 1) <= l <= T TV(q_T, r_T) / (m + 1), both tight.

    Example:
        >>> student = torch.tensor([[0.4, 0.12, 0.18, 0.30]]).log()
        >>> teacher = torch.tensor([[0.4, 0.18, 0.192, 0.228]]).log()
        >>> compensation_bounds(student, teacher, torch.tensor([0]))
        CompensationBounds(lower=tensor([0.0400]), compensation=tensor([0.0500]), upper=tensor([0.0600]))
    """
    labels = weighed(labels, student_logits)
    step = directions(student_logits, teacher_logits, labels, temperature=temperature)
    distance = step.conditional.abs().sum(-1) / 2
    upper = distance / (num_correct(labels) + 1)
    return CompensationBounds(distance / (student_logits.shape[-1] - 1), step.compensation, upper)


@dataclass(frozen=True)
class ExtraMargin:
    """What a protected step adds to the margins of the label step alone."""

    gain: Float[Tensor, "*batch others"]
    """eta beta [u_j + l]_+; K wide where the labels are sets, infinite on them as margins are."""
    bound: Float[Tensor, "*batch"]
    """(m + 2) / (m + 1) eta beta T TV(q_T, r_T)."""


def extra_margin(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"] | TopK,
    labels: Shaped[Tensor, "..."],
    step_size: float | Float[Tensor, "*batch"],
    *,
    beta: float = PAPER_BETA,
    temperature: float = 1.0,
) -> ExtraMargin:
    """The margin that the protected step gains on every competitor beyond the label step.

    Paper: eq:extra-margin-bound, 0 <= (eta / 2) [r_j - q_j + l]_+ <= 3 eta TV(q, r) / 4 for beta = 1/2; both sides are
    proportional to `beta`. The most demanding competitors keep exactly the label step's margin. EXTENSIONS 1 and 3:
    with m correct classes and a temperature, at most (m + 2) / (m + 1) eta beta T TV(q_T, r_T), the same for each of
    them.

    Shapes: logits `(*batch, K)`, labels `(*batch)`; `gain` `(*batch, K-1)`, `bound` `(*batch)`. With a mask or
    probabilities `(*batch, K)` as labels `gain` is `(*batch, K)`.

    Example:
        >>> student = torch.tensor([[0.4, 0.12, 0.18, 0.30]]).log()
        >>> teacher = torch.tensor([[0.4, 0.18, 0.192, 0.228]]).log()
        >>> extra_margin(student, teacher, torch.tensor([0]), 1.0)
        ExtraMargin(gain=tensor([[0.0000, 0.0150, 0.0850]]), bound=tensor([0.0900]))
    """
    labels = weighed(labels, student_logits)
    step = directions(student_logits, teacher_logits, labels, beta=beta, temperature=temperature)
    eta = as_grid("step_size", step_size, step.compensation, low=0.0)
    distance = step.conditional.abs().sum(-1) / 2
    lead = 0 - (least_correct(step.safe, labels).unsqueeze(-1) - drop_target(step.safe, labels, fill=0.0))
    gain = beta * eta * lead
    factor = per_count(lambda m: (m + 2) / (m + 1) * beta, labels, distance)
    wide = as_wide(gain, over_batch(labels, gain.shape[:-1]), torch.inf)
    return ExtraMargin(wide, factor * eta.squeeze(-1) * distance)


@dataclass(frozen=True)
class ExtraLabelGain:
    """What a protected step takes off the label loss beyond the label step, and its bounds from tight to loose."""

    gain: Float[Tensor, "*batch"]
    """L_CE(z') - L_CE(z' - eta beta d) with z' = z - eta h, never negative."""
    first_order: Float[Tensor, "*batch"]
    """eta beta h(z')'d."""
    bound: Float[Tensor, "*batch"]
    """(m + 2) / (m + 1) eta beta (1 - rho') T TV(q_T, r_T)."""
    initial_bound: Float[Tensor, "*batch"]
    """The same with rho in place of rho'; infinite for several correct classes."""


def extra_label_gain(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"] | TopK,
    labels: Shaped[Tensor, "..."],
    step_size: float | Float[Tensor, "*batch"],
    *,
    beta: float = PAPER_BETA,
    temperature: float = 1.0,
) -> ExtraLabelGain:
    """The label loss that the protected step gains beyond the label step; it vanishes with the conditional mismatch.

    Paper: eq:extra-ce-bound for beta = 1/2, each field is at most the next; all but the first are proportional to
    `beta`. EXTENSIONS 1 and 3: the same for the cross-entropy of a soft label and at a temperature, but for the last
    field: a step on several correct classes may lower their sum rho, so nothing is known of 1 - rho' beforehand.

    Shapes: logits `(*batch, K)`, labels `(*batch)` or probabilities `(*batch, K)`; every field is `(*batch)`.

    Example:
        >>> student, teacher = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]])
        >>> extra = extra_label_gain(student, teacher, torch.tensor([0]), 0.1)
        >>> bool(0 <= extra.gain <= extra.first_order <= extra.bound <= extra.initial_bound)
        True
    """
    z, zt, y = check_teaching(student_logits, teacher_logits, labels)
    step = directions(z, zt, y, beta=beta, temperature=temperature)
    eta = as_grid("step_size", step_size, step.compensation, low=0.0)
    after_label = without_shift(z, y) - eta * step.label
    after = split_checked(after_label, y)
    factor = per_count(lambda m: (m + 2) / (m + 1) * beta, y, step.compensation)
    scaled_distance = factor * eta.squeeze(-1) * step.conditional.abs().sum(-1) / 2
    initial_bound = scaled_distance * split_checked(z, y).log_residual.exp()
    return ExtraLabelGain(
        gain=label_loss(after_label, y) - label_loss(after_label - beta * eta * step.safe, y),
        first_order=beta * eta.squeeze(-1) * inner(label_direction(after, after_label, y), step.safe),
        bound=scaled_distance * after.log_residual.exp(),
        initial_bound=torch.where(is_single(y), initial_bound, torch.inf) if is_set(y) else initial_bound,
    )
