"""How much of the teacher's conditional signal protection keeps, what it removes, and what the label side gains."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tpkd.geometry.constants import PAPER_BETA, retention_bound
from tpkd.geometry.correct import check_pair
from tpkd.geometry.directions import directions, label_direction
from tpkd.geometry.divergences import label_loss
from tpkd.geometry.margins import margins
from tpkd.geometry.split import split, without_shift
from tpkd.theory.pair import as_grid
from tpkd.theory.vectors import inner


@dataclass(frozen=True)
class Retention:
    """Theorem 3 of each example; shares and cosine are 1 where nothing is left to learn: r = q up to rounding."""

    descent_share: Float[Tensor, "*batch"]
    """u'd / ||u||^2, at least gamma_K."""
    norm_share: Float[Tensor, "*batch"]
    """||d||^2 / ||u||^2, equal to the above."""
    pure_share: Float[Tensor, "*batch"]
    """||w_cond||^2 / ||d||^2, at least gamma_K."""
    cosine: Float[Tensor, "*batch"]
    """cos(u, w_cond), at least c_K."""


def retention(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]
) -> Retention:
    """What protection keeps of the conditional signal, and how much of that is conditional learning proper.

    Paper: eq:retention, thm:retention. u'd = ||d||^2 >= gamma_K ||u||^2 and ||w_cond||^2 >= gamma_K ||d||^2; both are
    tight, together. A share of nothing is 1: where r and q are equal up to rounding, no processor's last bit decides.

    Shapes: logits `(*batch, K)`, labels `(*batch)`; every field is `(*batch)`.

    Example:
        >>> student = torch.tensor([[0.4, 0.12, 0.18, 0.30]]).log()
        >>> teacher = torch.tensor([[0.4, 0.18, 0.192, 0.228]]).log()
        >>> kept = retention(student, teacher, torch.tensor([0]))
        >>> kept.descent_share, kept.cosine.acos().rad2deg()
        (tensor([0.7984]), tensor([11.5364]))
    """
    step = directions(student_logits, teacher_logits, labels)
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
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """How far inside its ball the pure conditional part lies, in units of ||u||^2; 0 where r = q up to rounding.

    Paper: eq:relation-ball, prop:alignment. ||w_cond - (1 + gamma) u / 2||^2 <= (1 - gamma)^2 ||u||^2 / 4: up to
    rounding the slack is not negative.

    Example:
        >>> student, teacher = torch.tensor([[2.0, 1.0, 0.0, 3.0]]), torch.tensor([[1.0, 0.0, 0.5, 0.0]])
        >>> relation_ball_slack(student, teacher, torch.tensor([0])) >= 0
        tensor([True])
    """
    step = directions(student_logits, teacher_logits, labels)
    gamma = retention_bound(student_logits.shape[-1])
    scale = step.conditional.abs().amax(-1, keepdim=True)
    u, w = step.conditional / scale, step.pure_conditional / scale
    offset = w - (1 + gamma) / 2 * u
    slack = (1 - gamma) ** 2 / 4 - inner(offset, offset) / inner(u, u)
    return torch.where(scale.squeeze(-1) == 0, 0.0, slack)


@dataclass(frozen=True)
class RemovedSignal:
    """What protection takes out of the conditional first-order signal."""

    removed: Float[Tensor, "*batch"]
    """||u||^2 - u'd."""
    clipped: Float[Tensor, "*batch"]
    """l^2 + sum_j lambda_j^2, equal to the above."""
    active: Int[Tensor, "*batch"]
    """m, the number of clipped classes."""
    lower: Float[Tensor, "*batch"]
    """l^2 (1 + 1/m); 0 where nothing is clipped."""
    upper: Float[Tensor, "*batch"]
    """2 l^2."""


def removed_signal(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]
) -> RemovedSignal:
    """The exact conditional signal that protection removes, and its bounds from the number of clipped classes.

    Paper: eq:exact-removed, eq:active-removed. ||u||^2 - u'd = l^2 + sum_j lambda_j^2, between l^2 (1 + 1/m) and 2 l^2.
    Where r = q up to rounding nothing is clipped and every field is 0.

    Shapes: logits `(*batch, K)`, labels `(*batch)`; every field is `(*batch)`.

    Example:
        >>> student = torch.tensor([[0.4, 0.12, 0.18, 0.30]]).log()
        >>> teacher = torch.tensor([[0.4, 0.18, 0.192, 0.228]]).log()
        >>> removed_signal(student, teacher, torch.tensor([0])).active
        tensor([1])
    """
    step = directions(student_logits, teacher_logits, labels)
    active = (step.clipped_mass > 0).sum(-1)
    squared = step.compensation.square()
    return RemovedSignal(
        removed=inner(step.conditional, step.conditional) - inner(step.conditional, step.safe),
        clipped=squared + inner(step.clipped_mass, step.clipped_mass),
        active=active,
        lower=torch.where(active > 0, squared + squared / active.clamp(min=1), 0.0),
        upper=2 * squared,
    )


@dataclass(frozen=True)
class CompensationBounds:
    """The compensation between its two bounds."""

    lower: Float[Tensor, "*batch"]
    """TV(q, r) / (K - 1)."""
    compensation: Float[Tensor, "*batch"]
    """l."""
    upper: Float[Tensor, "*batch"]
    """TV(q, r) / 2."""


def compensation_bounds(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]
) -> CompensationBounds:
    """The push on the correct class, and what the distance of the two conditional distributions says about it.

    Paper: appendix B.2, TV(q, r) / (K - 1) <= l <= TV(q, r) / 2, both tight; so l < 1/2.

    Example:
        >>> student = torch.tensor([[0.4, 0.12, 0.18, 0.30]]).log()
        >>> teacher = torch.tensor([[0.4, 0.18, 0.192, 0.228]]).log()
        >>> compensation_bounds(student, teacher, torch.tensor([0]))
        CompensationBounds(lower=tensor([0.0400]), compensation=tensor([0.0500]), upper=tensor([0.0600]))
    """
    step = directions(student_logits, teacher_logits, labels)
    distance = step.conditional.abs().sum(-1) / 2
    return CompensationBounds(distance / (student_logits.shape[-1] - 1), step.compensation, distance / 2)


@dataclass(frozen=True)
class ExtraMargin:
    """What a protected step adds to the margins of the label step alone."""

    gain: Float[Tensor, "*batch others"]
    """eta beta [r_j - q_j + l]_+."""
    bound: Float[Tensor, "*batch"]
    """(3 / 2) eta beta TV(q, r)."""


def extra_margin(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Int[Tensor, "*batch"],
    step_size: float | Float[Tensor, "*batch"],
    *,
    beta: float = PAPER_BETA,
) -> ExtraMargin:
    """The margin that the protected step gains on every competitor beyond the label step.

    Paper: eq:extra-margin-bound, 0 <= (eta / 2) [r_j - q_j + l]_+ <= 3 eta TV(q, r) / 4 for beta = 1/2; both sides are
    proportional to `beta`. The most demanding competitors keep exactly the label step's margin.

    Shapes: logits `(*batch, K)`, labels `(*batch)`; `gain` `(*batch, K-1)`, `bound` `(*batch)`.

    Example:
        >>> student = torch.tensor([[0.4, 0.12, 0.18, 0.30]]).log()
        >>> teacher = torch.tensor([[0.4, 0.18, 0.192, 0.228]]).log()
        >>> extra_margin(student, teacher, torch.tensor([0]), 1.0)
        ExtraMargin(gain=tensor([[0.0000, 0.0150, 0.0850]]), bound=tensor([0.0900]))
    """
    step = directions(student_logits, teacher_logits, labels, beta=beta)
    eta = as_grid("step_size", step_size, step.compensation, low=0.0)
    distance = step.conditional.abs().sum(-1) / 2
    return ExtraMargin(beta * eta * (0 - margins(step.safe, labels)), 3 / 2 * beta * eta.squeeze(-1) * distance)


@dataclass(frozen=True)
class ExtraLabelGain:
    """What a protected step takes off the label loss beyond the label step, and its bounds from tight to loose."""

    gain: Float[Tensor, "*batch"]
    """L_CE(z') - L_CE(z' - eta beta d) with z' = z - eta h, never negative."""
    first_order: Float[Tensor, "*batch"]
    """eta beta h(z')'d."""
    bound: Float[Tensor, "*batch"]
    """(3 / 2) eta beta (1 - rho') TV(q, r)."""
    initial_bound: Float[Tensor, "*batch"]
    """(3 / 2) eta beta (1 - rho) TV(q, r)."""


def extra_label_gain(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Int[Tensor, "*batch"],
    step_size: float | Float[Tensor, "*batch"],
    *,
    beta: float = PAPER_BETA,
) -> ExtraLabelGain:
    """The label loss that the protected step gains beyond the label step; it vanishes with the conditional mismatch.

    Paper: eq:extra-ce-bound for beta = 1/2, each field is at most the next; all but the first are proportional to
    `beta`.

    Shapes: logits `(*batch, K)`, labels `(*batch)`; every field is `(*batch)`.

    Example:
        >>> student, teacher = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]])
        >>> extra = extra_label_gain(student, teacher, torch.tensor([0]), 0.1)
        >>> bool(0 <= extra.gain <= extra.first_order <= extra.bound <= extra.initial_bound)
        True
    """
    z, zt, y = check_pair(student_logits, teacher_logits, labels)
    step = directions(z, zt, y, beta=beta)
    eta = as_grid("step_size", step_size, step.compensation, low=0.0)
    after_label = without_shift(z, y) - eta * step.label
    after = split(after_label, y)
    scaled_distance = 3 / 2 * beta * eta.squeeze(-1) * step.conditional.abs().sum(-1) / 2
    return ExtraLabelGain(
        gain=label_loss(after_label, y) - label_loss(after_label - beta * eta * step.safe, y),
        first_order=beta * eta.squeeze(-1) * inner(label_direction(after, after_label, y), step.safe),
        bound=scaled_distance * after.log_residual.exp(),
        initial_bound=scaled_distance * split(z, y).log_residual.exp(),
    )
