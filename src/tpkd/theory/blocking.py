"""When closer imitation must give something back: the blocking test, the price of moving, and the blocked region."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from tpkd.geometry.correct import check_pair, correct_mask, drop_target, is_set
from tpkd.geometry.divergences import imitation_loss, kl_divergence, log_ratio
from tpkd.geometry.inputs import check_logits, check_same_shape, first_place
from tpkd.theory.pair import Inside, Pair, is_single, split_pair


def is_blocked(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    *,
    tolerance: float = 0.0,
) -> Bool[Tensor, "*batch"]:
    """Whether the student is already the closest full imitation that keeps every margin.

    Paper: thm:block. The test p_j <= t_j for every incorrect class, in log space and without underflow:
    log(1 - rho) - log(1 - tau) <= min_j log(q_j / r_j), up to `tolerance` in the logarithm. Equal predictions are
    blocked, whatever constant their logits differ by; logits that were rounded differently may need the tolerance.
    EXTENSIONS 1, with a set of correct classes: and p_y >= t_y for every class of the set.

    Shapes: logits `(*batch, K)`, labels `(*batch)`, or a mask or probabilities `(*batch, K)`; returns `(*batch)`.
    Logits that say neither yes nor no are refused.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> is_blocked(student, teacher, torch.tensor([0])), is_blocked(teacher, student, torch.tensor([0]))
        (tensor([True]), tensor([False]))
    """
    pair = split_pair(student_logits, teacher_logits, labels)
    undecided = _largest_excess(pair).isnan()
    if undecided.any():
        raise ValueError(
            "student_logits, teacher_logits: expected a distribution over the incorrect classes of both, "
            f"got nan, inf or nothing but -inf at {first_place(undecided)}"
        )
    return pair_is_blocked(pair, tolerance=tolerance)


def pair_is_blocked(pair: Pair, *, tolerance: float = 0.0) -> Bool[Tensor, "*batch"]:
    """`is_blocked` of predictions that are already split and known to be finite.

    Example:
        >>> pair_is_blocked(split_pair(torch.zeros(1, 3), torch.zeros(1, 3), torch.tensor([0])))
        tensor([True])
    """
    return _largest_excess(pair) <= tolerance


def _largest_excess(pair: Pair) -> Tensor:
    """max_j log(p_j / t_j) over the incorrect classes, and log(t_y / p_y) over the classes of a set of several."""
    excess = pair.student.log_residual - pair.teacher.log_residual - pair.log_ratio.amin(-1)
    if pair.inside is None:
        return excess
    shortfall = pair.teacher.log_confidence - pair.student.log_confidence + _largest_share_ratio(pair.inside)
    # Of one class p_y >= t_y follows from the others, and rounding must not ask again.
    return torch.where(is_single(pair.labels), excess, excess.maximum(shortfall))


def _largest_share_ratio(inside: Inside) -> Tensor:
    """max_y log of the teacher's share of class y in the set over the student's."""
    return log_ratio(inside.teacher, inside.student).amax(-1)


@dataclass(frozen=True)
class BlockingGap:
    """What moving to another prediction does to full imitation, and the two terms it is made of."""

    change: Float[Tensor, "*batch"]
    """L_T(p') - L_T(p)."""
    distance: Float[Tensor, "*batch"]
    """KL(p || p')."""
    margin_term: Float[Tensor, "*batch"]
    """sum_j (t_j - p_j) (M_j(p') - M_j(p)); nonnegative when p is blocked and p' keeps every margin. For a set of
    correct classes the same sum written with logits, sum_k (p_k - t_k) (z'_k - z_k)."""


def blocking_gap(
    candidate_logits: Float[Tensor, "*batch K"],
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
) -> BlockingGap:
    """What replacing the student by a candidate prediction does to full imitation.

    Paper: eq:block, L_T(p') - L_T(p) = KL(p || p') + sum_j (t_j - p_j) dM_j for any p'; both sides are computed.
    EXTENSIONS 1: with a set Y of correct classes the sum is that of (p_y - t_y)(t_j - p_j) dM_yj over all pairs,
    divided by the total of either factor, so blocking means the same.

    Shapes: logits `(*batch, K)`, labels `(*batch)`, or a mask or probabilities `(*batch, K)`; every field is
    `(*batch)`.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> gap = blocking_gap(student + torch.tensor([1.0, 0.0, 0.0]), student, teacher, torch.tensor([0]))
        >>> torch.allclose(gap.change, gap.distance + gap.margin_term)
        True
    """
    check_logits("candidate_logits", candidate_logits)
    check_same_shape(student_logits, candidate_logits, "candidate_logits")
    z, zt, y = check_pair(student_logits, teacher_logits, labels, masks=True)
    candidate = candidate_logits.to(z.dtype)
    log_p, log_t = z.log_softmax(-1), zt.log_softmax(-1)
    excess = log_t.exp() - log_p.exp()
    return BlockingGap(
        change=imitation_loss(candidate, zt, y) - imitation_loss(z, zt, y),
        distance=kl_divergence(log_p, candidate.log_softmax(-1)),
        margin_term=_margin_term(candidate, z, y, excess),
    )


def _margin_term(candidate: Tensor, z: Tensor, y: Tensor, excess: Tensor) -> Tensor:
    """sum_j (t_j - p_j) dM_yj for the first correct class y, and what the other correct classes move against it."""
    correct = correct_mask(y, z.shape[-1])
    first = correct.long().argmax(-1, keepdim=True)
    candidate_lead, lead = candidate.gather(-1, first) - candidate, z.gather(-1, first) - z
    # What both rule out has no margin, and no part in the sum.
    terms = torch.where(excess == 0, 0.0, excess * (candidate_lead - lead))
    outside = drop_target(terms, y, fill=0.0).sum(-1)
    return outside + terms.masked_fill(~correct, 0.0).sum(-1) if is_set(y) else outside


def strict_blocking_log_odds(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."]
) -> Float[Tensor, "*batch"]:
    """The log-odds above which a student with these relations is strictly blocked, whatever is left to learn.

    Paper: appendix A.2, every rho with 1 - rho < (1 - tau) min_j q_j / r_j; the student's own confidence plays no part.
    EXTENSIONS 1: with a set of several correct classes rho must also exceed tau times the largest ratio of their shares
    in the set, teacher over student; where that is 1 or more no confidence blocks, and the border is infinite.

    Shapes: logits `(*batch, K)`, labels `(*batch)`, or a mask or probabilities `(*batch, K)`; returns logit(rho) at the
    border, `(*batch)`.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> strict_blocking_log_odds(student, teacher, torch.tensor([0])).sigmoid()
        tensor([0.6429])
    """
    pair = split_pair(student_logits, teacher_logits, labels)
    log_residual = pair.teacher.log_residual + pair.log_ratio.amin(-1).clamp(max=0)
    border = (-log_residual.expm1()).log() - log_residual
    if pair.inside is None:
        return border
    log_confidence = (pair.teacher.log_confidence + _largest_share_ratio(pair.inside)).clamp(max=0)
    inside = log_confidence - (-log_confidence.expm1()).log()
    return torch.where(is_single(pair.labels), border, border.maximum(inside))
