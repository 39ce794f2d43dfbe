"""The three losses of the paper, the divergences they are made of, and how full imitation decomposes."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn.functional import logsigmoid

from tpkd.geometry.correct import check_pair, check_single, is_set
from tpkd.geometry.inputs import check_positive
from tpkd.geometry.split import log_within, split_checked
from tpkd.geometry.teaching import check_teaching, conditional_logs
from tpkd.geometry.top_k import TopK


def kl_divergence(
    log_target: Float[Tensor, "*#batch M"], log_input: Float[Tensor, "*#batch M"]
) -> Float[Tensor, "*#batch"]:
    """KL(target || input) of two log-distributions, never negative.

    Where the two are equal up to rounding the sum can leave -1e-17; the value is lifted to zero, the gradient is kept.
    What the target rules out counts nothing, also where the input rules it out too.

    Example:
        >>> import torch
        >>> p, q = torch.tensor([0.5, 0.5]).log(), torch.tensor([0.25, 0.75]).log()
        >>> kl_divergence(p, q)
        tensor(0.1438)
    """
    log_ratio = (log_target - log_input).masked_fill(log_target == -torch.inf, 0.0)
    divergence = (log_target.exp() * log_ratio).sum(-1)
    return divergence + (-divergence).clamp(min=0).detach()


def binary_kl_divergence(
    target_log_odds: Float[Tensor, "*batch"], input_log_odds: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """KL of two yes/no distributions given by their log-odds, exact at both ends.

    Example:
        >>> import torch
        >>> binary_kl_divergence(torch.tensor(0.0), torch.tensor(0.0))
        tensor(0.)
    """
    yes = target_log_odds.sigmoid() * (logsigmoid(target_log_odds) - logsigmoid(input_log_odds))
    no = (-target_log_odds).sigmoid() * (logsigmoid(-target_log_odds) - logsigmoid(-input_log_odds))
    divergence = yes + no
    return divergence + (-divergence).clamp(min=0).detach()


def log_ratio(log_target: Float[Tensor, "*batch M"], log_input: Float[Tensor, "*batch M"]) -> Float[Tensor, "*batch M"]:
    """log(target_j / input_j); what both rule out counts as not there.

    Its ratio is taken as one, which moves neither the least nor the largest: of two distributions neither is above the
    other everywhere.

    Example:
        >>> import torch
        >>> log_ratio(torch.tensor([0.5, 0.5, 0.0]).log(), torch.tensor([0.25, 0.75, 0.0]).log())
        tensor([ 0.6931, -0.4055,  0.0000])
    """
    return (log_target - log_input).masked_fill(log_target == log_input, 0.0)


def max_log_ratio(
    log_target: Float[Tensor, "*batch M"], log_input: Float[Tensor, "*batch M"]
) -> Float[Tensor, "*batch"]:
    """D_inf(target || input) = max_j log(target_j / input_j), never negative.

    Example:
        >>> import torch
        >>> max_log_ratio(torch.tensor([0.5, 0.5]).log(), torch.tensor([0.25, 0.75]).log())
        tensor(0.6931)
    """
    return log_ratio(log_target, log_input).amax(-1).clamp(min=0)


def label_loss(logits: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."]) -> Float[Tensor, "*batch"]:
    """Cross-entropy -log rho of each example; -sum_y s_y log p_y for a soft label s.

    Paper: section 3, L_CE; EXTENSIONS 1 for probabilities `(*batch, K)` as labels, where its least value is H(s).

    Example:
        >>> import torch
        >>> label_loss(torch.tensor([[0.9, 0.07, 0.03]]).log(), torch.tensor([0]))
        tensor([0.1054])
        >>> label_loss(torch.tensor([[0.5, 0.3, 0.1, 0.1]]).log(), torch.tensor([[0.5, 0.5, 0.0, 0.0]]))
        tensor([0.9486])
    """
    z, y = check_single("logits", logits, labels, masks=False)
    loss = -split_checked(z, y).log_confidence
    return loss + within_loss(z, y) if is_set(y) else loss


def within_loss(logits: Float[Tensor, "*batch K"], labels: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch"]:
    """The part of a soft label's cross-entropy that lies among its own classes; 0 for a single one.

    Example:
        >>> import torch
        >>> within_loss(torch.zeros(1, 4), torch.tensor([[0.5, 0.5, 0.0, 0.0]]))
        tensor([0.6931])
    """
    return -(labels * log_within(logits, labels).masked_fill(labels == 0, 0.0)).sum(-1)


def conditional_loss(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"] | TopK,
    labels: Shaped[Tensor, "..."],
    *,
    temperature: float = 1.0,
) -> Float[Tensor, "*batch"]:
    """KL(q || r): what is left to learn of the teacher's relations among the incorrect classes.

    Paper: section 3, L_cond. It does not see how certain either of the two is. At a temperature (EXTENSIONS 3)
    T^2 KL(q_T || r_T), whose gradient and curvature are of one size for every T. Of a truncated teacher (EXTENSIONS 2)
    it is that of the completed one, a lower bound of what the whole teacher would give.

    Example:
        >>> import torch
        >>> student, teacher = torch.tensor([[0.9, 0.07, 0.03]]).log(), torch.tensor([[0.4, 0.25, 0.35]]).log()
        >>> conditional_loss(student, teacher, torch.tensor([0]))
        tensor([0.1717])
    """
    check_positive("temperature", temperature)
    z, zt, y = check_teaching(student_logits, teacher_logits, labels, masks=True)
    log_r, log_q = conditional_logs(z, zt, y, temperature)
    return temperature**2 * kl_divergence(log_q, log_r)


def imitation_loss(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    *,
    temperature: float = 1.0,
) -> Float[Tensor, "*batch"]:
    """KL(t || p): the full imitation loss of ordinary distillation; at a temperature T^2 KL(t_T || p_T).

    Paper: eq:kldecomp. Summed through the decomposition L_T = kl(tau || rho) + (1 - tau) L_cond, which keeps the small
    conditional part exact where both confidences are close to one; with a set of correct classes, plus tau times the
    divergence inside the set.

    Example:
        >>> import torch
        >>> student, teacher = torch.tensor([[0.9, 0.07, 0.03]]).log(), torch.tensor([[0.4, 0.25, 0.35]]).log()
        >>> imitation_loss(student, teacher, torch.tensor([0]))
        tensor([0.8537])
    """
    check_positive("temperature", temperature)
    z, zt, y = check_pair(student_logits, teacher_logits, labels, masks=True)
    if temperature != 1:
        z, zt = z / temperature, zt / temperature
    student, teacher = split_checked(z, y), split_checked(zt, y)
    confidence_part = binary_kl_divergence(teacher.log_odds, student.log_odds)
    conditional_part = kl_divergence(teacher.log_conditional, student.log_conditional)
    loss = confidence_part + teacher.log_residual.exp() * conditional_part
    if is_set(y):
        loss = loss + teacher.log_confidence.exp() * kl_divergence(log_within(zt, y), log_within(z, y))
    return temperature**2 * loss
