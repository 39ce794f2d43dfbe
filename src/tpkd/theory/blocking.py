"""When closer imitation must give something back: the blocking test, the price of moving, and the blocked region."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpkd.geometry.correct import check_pair, drop_target
from tpkd.geometry.divergences import imitation_loss, kl_divergence
from tpkd.geometry.inputs import check_logits, check_same_shape
from tpkd.geometry.margins import margins
from tpkd.theory.pair import Pair, first_place, split_pair


def is_blocked(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Int[Tensor, "*batch"],
    *,
    tolerance: float = 0.0,
) -> Bool[Tensor, "*batch"]:
    """Whether the student is already the closest full imitation that keeps every margin.

    Paper: thm:block. The test p_j <= t_j for every incorrect class, in log space and without underflow:
    log(1 - rho) - log(1 - tau) <= min_j log(q_j / r_j), up to `tolerance` in the logarithm. Equal predictions are
    blocked, whatever constant their logits differ by; logits that were rounded differently may need the tolerance.

    Shapes: logits `(*batch, K)`, labels `(*batch)`; returns `(*batch)`. Logits that say neither yes nor no are refused.

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
    """max_j log(p_j / t_j) over the incorrect classes."""
    return pair.student.log_residual - pair.teacher.log_residual - pair.log_ratio.amin(-1)


@dataclass(frozen=True)
class BlockingGap:
    """What moving to another prediction does to full imitation, and the two terms it is made of."""

    change: Float[Tensor, "*batch"]
    """L_T(p') - L_T(p)."""
    distance: Float[Tensor, "*batch"]
    """KL(p || p')."""
    margin_term: Float[Tensor, "*batch"]
    """sum_j (t_j - p_j) (M_j(p') - M_j(p)); nonnegative when p is blocked and p' keeps every margin."""


def blocking_gap(
    candidate_logits: Float[Tensor, "*batch K"],
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Int[Tensor, "*batch"],
) -> BlockingGap:
    """What replacing the student by a candidate prediction does to full imitation.

    Paper: eq:block, L_T(p') - L_T(p) = KL(p || p') + sum_j (t_j - p_j) dM_j for any p'; both sides are computed.

    Shapes: logits `(*batch, K)`, labels `(*batch)`; every field is `(*batch)`.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> gap = blocking_gap(student + torch.tensor([1.0, 0.0, 0.0]), student, teacher, torch.tensor([0]))
        >>> torch.allclose(gap.change, gap.distance + gap.margin_term)
        True
    """
    check_logits("candidate_logits", candidate_logits)
    check_same_shape(student_logits, candidate_logits, "candidate_logits")
    z, zt, y = check_pair(student_logits, teacher_logits, labels)
    candidate = candidate_logits.to(z.dtype)
    log_p, log_t = z.log_softmax(-1), zt.log_softmax(-1)
    gain = margins(candidate, y) - margins(z, y)
    excess = drop_target(log_t.exp() - log_p.exp(), y)
    return BlockingGap(
        change=imitation_loss(candidate, zt, y) - imitation_loss(z, zt, y),
        distance=kl_divergence(log_p, candidate.log_softmax(-1)),
        # What both rule out has no margin, and no part in the sum.
        margin_term=torch.where(excess == 0, 0.0, excess * gain).sum(-1),
    )


def strict_blocking_log_odds(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """The log-odds above which a student with these relations is strictly blocked, whatever is left to learn.

    Paper: appendix A.2, every rho with 1 - rho < (1 - tau) min_j q_j / r_j; the student's own confidence plays no part.

    Shapes: logits `(*batch, K)`, labels `(*batch)`; returns logit(rho) at the border, `(*batch)`.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> strict_blocking_log_odds(student, teacher, torch.tensor([0])).sigmoid()
        tensor([0.6429])
    """
    pair = split_pair(student_logits, teacher_logits, labels)
    log_residual = pair.teacher.log_residual + pair.log_ratio.amin(-1).clamp(max=0)
    return (-log_residual.expm1()).log() - log_residual
