"""What exact conditional transfer costs in confidence, and the path that pays no more."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from tpkd.geometry.correct import check_single, insert_target, one_class
from tpkd.geometry.divergences import binary_kl_divergence
from tpkd.geometry.split import join, split
from tpkd.theory.pair import Pair, as_grid, rejoin, split_pair


def transfer_cost(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."]
) -> Float[Tensor, "*batch"]:
    """The least rise of the correct class's log-odds that lets the student take over the teacher's relations whole.

    Paper: thm:cost, D_inf(q || r) = max_j log(q_j / r_j): the most underestimated competitor sets the price. Zero
    exactly when r = q. EXTENSIONS 1: with a set of correct classes, of the log-odds of the set; changing proportions
    inside it would only cost more.

    Shapes: logits `(*batch, K)`, labels `(*batch)`, or a mask or probabilities `(*batch, K)`; returns `(*batch)`, in
    nats.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> transfer_cost(student, teacher, torch.tensor([0]))
        tensor([0.6650])
    """
    return pair_transfer_cost(split_pair(student_logits, teacher_logits, labels))


def pair_transfer_cost(pair: Pair) -> Float[Tensor, "*batch"]:
    """`transfer_cost` of predictions that are already split.

    Example:
        >>> pair_transfer_cost(split_pair(torch.zeros(1, 3), torch.zeros(1, 3), torch.tensor([0])))
        tensor([0.])
    """
    return pair.log_ratio.amax(-1).clamp(min=0)


def min_log_odds(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."]
) -> Float[Tensor, "*batch"]:
    """The log-odds of the least confidence that permits exact transfer; exact where that rounds to one.

    Paper: eq:mincost, logit(a_min) = logit(rho) + D_inf(q || r).

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> min_log_odds(student, teacher, torch.tensor([0])).exp()
        tensor([17.5000])
    """
    pair = split_pair(student_logits, teacher_logits, labels)
    return pair.student.log_odds + pair_transfer_cost(pair)


def min_confidence(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."]
) -> Float[Tensor, "*batch"]:
    """The least confidence in the label that permits exact transfer with no margin lowered.

    Paper: section 4.2, a_min = rho R / (1 - rho + rho R) with R = max_j q_j / r_j, the sigmoid of `min_log_odds`.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> min_confidence(student, teacher, torch.tensor([0]))
        tensor([0.9459])
    """
    return min_log_odds(student_logits, teacher_logits, labels).sigmoid()


def transfer_endpoint(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."]
) -> Float[Tensor, "*batch K"]:
    """Log-probabilities of the least confident prediction that has the teacher's relations and keeps every margin.

    Paper: section 4.2, p* = (a_min, (1 - a_min) q). Inside a set of correct classes it has the student's proportions.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> transfer_endpoint(student, teacher, torch.tensor([0])).exp()
        tensor([[0.9459, 0.0225, 0.0315]])
    """
    pair = split_pair(student_logits, teacher_logits, labels)
    return rejoin(pair, pair.student.log_odds + pair_transfer_cost(pair), pair.teacher.log_conditional)


def log_transfer_path(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    position: float | Float[Tensor, "*grid"],
) -> Float[Tensor, "*path K"]:
    """Log-probabilities along the path from the student to exact transfer that compensates just enough at each point.

    Paper: eq:path, r(s) = (1 - s) r + s q and logit a(s) = logit(rho) + log(1 - s + s R), R = max_j q_j / r_j. Inside a
    set of correct classes the proportions are the student's all along.

    Shapes: logits `(*batch, K)`, labels `(*batch)`, or a mask or probabilities `(*batch, K)`; `position` in [0, 1] is a
    number or broadcasts against the batch shape, so a grid is a leading axis `(G, 1)` and gives `(G, *batch, K)`.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> log_transfer_path(student, teacher, torch.tensor([0]), torch.tensor([[0.0], [1.0]])).exp()
        tensor([[[0.9000, 0.0700, 0.0300]],
        <BLANKLINE>
                [[0.9459, 0.0225, 0.0315]]])
    """
    pair = split_pair(student_logits, teacher_logits, labels)
    s = as_grid("position", position, pair.student.log_odds, low=0.0, high=1.0)
    stay, go = (-s).log1p(), s.log()
    log_odds_gain = torch.logaddexp(stay.squeeze(-1), go.squeeze(-1) + pair_transfer_cost(pair))
    log_growth = torch.logaddexp(stay, go + pair.log_ratio)  # log(r_j(s) / r_j)
    log_odds = pair.student.log_odds + log_odds_gain
    return rejoin(pair, log_odds, pair.student.log_conditional + log_growth)


def log_separation_family(
    teacher_logits: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."], residual: float | Float[Tensor, "*grid"]
) -> Float[Tensor, "*path K"]:
    """Log-probabilities of students with the teacher's relations, whose certainty takes the imitation loss to infinity.

    Paper: eq:separation, p(e) = (1 - e, e q): as e falls to 0 the label loss goes to 0, the conditional loss is 0 and
    the full imitation loss goes to infinity. For one correct class only.

    Shapes: teacher logits `(*batch, K)`, labels `(*batch)`; `residual` in (0, 1) is a number or broadcasts against the
    batch shape.

    Example:
        >>> log_separation_family(torch.tensor([[0.40, 0.25, 0.35]]).log(), torch.tensor([0]), 0.12).exp()
        tensor([[0.8800, 0.0500, 0.0700]])
    """
    zt, y = check_single("teacher_logits", teacher_logits, one_class("the separation", labels, teacher_logits.shape))
    log_q = split(zt, y).log_conditional
    tiny = torch.finfo(zt.dtype).smallest_normal
    e = as_grid("residual", residual, log_q[..., 0], low=tiny, high=1 - torch.finfo(zt.dtype).eps)
    log_others = e.log() + log_q
    log_target = (-e).log1p().squeeze(-1).expand(log_others.shape[:-1])
    return insert_target(log_others, log_target, y.expand(log_target.shape))


def ce_only_optimum(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."]
) -> Float[Tensor, "*batch K"]:
    """Log-probabilities of the closest imitation when only the label loss is protected, not every margin.

    Paper: eq:ce-only-optimum, (a, (1 - a) q) with a = max(rho, tau). It may lower single margins. For one correct class
    only: a soft label's cross-entropy also holds the proportions inside its set.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> ce_only_optimum(student, teacher, torch.tensor([0])).exp()
        tensor([[0.9000, 0.0417, 0.0583]])
    """
    y = one_class("the optimum under the label loss alone", labels, student_logits.shape)
    pair = split_pair(student_logits, teacher_logits, y)
    log_odds = pair.student.log_odds.maximum(pair.teacher.log_odds)
    return join(log_odds, pair.teacher.log_conditional, pair.labels)


def ce_only_imitation_loss(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."]
) -> Float[Tensor, "*batch"]:
    """The imitation loss that is left at `ce_only_optimum`.

    Paper: appendix A.6, kl(tau || max(rho, tau)): zero exactly when the student is no more certain than the teacher.
    For one correct class only.

    Example:
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> ce_only_imitation_loss(student, teacher, torch.tensor([0]))
        tensor([0.7507])
    """
    y = one_class("the optimum under the label loss alone", labels, student_logits.shape)
    pair = split_pair(student_logits, teacher_logits, y)
    log_odds = pair.student.log_odds.maximum(pair.teacher.log_odds)
    return binary_kl_divergence(pair.teacher.log_odds, log_odds)
