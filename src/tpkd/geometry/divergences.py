"""The three losses of the paper, the divergences they are made of, and how full imitation decomposes."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid

from tpkd.geometry.inputs import check_pair
from tpkd.geometry.split import split


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


def label_loss(logits: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Cross-entropy -log rho of each example.

    Paper: section 3, L_CE.

    Example:
        >>> import torch
        >>> label_loss(torch.tensor([[0.9, 0.07, 0.03]]).log(), torch.tensor([0]))
        tensor([0.1054])
    """
    return -split(logits, labels).log_confidence


def conditional_loss(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """KL(q || r): what is left to learn of the teacher's relations among the incorrect classes.

    Paper: section 3, L_cond. It does not see how certain either of the two is.

    Example:
        >>> import torch
        >>> student, teacher = torch.tensor([[0.9, 0.07, 0.03]]).log(), torch.tensor([[0.4, 0.25, 0.35]]).log()
        >>> conditional_loss(student, teacher, torch.tensor([0]))
        tensor([0.1717])
    """
    z, zt, y = check_pair(student_logits, teacher_logits, labels)
    return kl_divergence(split(zt, y).log_conditional, split(z, y).log_conditional)


def imitation_loss(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """KL(t || p): the full imitation loss of ordinary distillation at unit temperature.

    Paper: eq:kldecomp. Summed through the decomposition L_T = kl(tau || rho) + (1 - tau) L_cond, which keeps the small
    conditional part exact where both confidences are close to one.

    Example:
        >>> import torch
        >>> student, teacher = torch.tensor([[0.9, 0.07, 0.03]]).log(), torch.tensor([[0.4, 0.25, 0.35]]).log()
        >>> imitation_loss(student, teacher, torch.tensor([0]))
        tensor([0.8537])
    """
    z, zt, y = check_pair(student_logits, teacher_logits, labels)
    student, teacher = split(z, y), split(zt, y)
    confidence_part = binary_kl_divergence(teacher.log_odds, student.log_odds)
    conditional_part = kl_divergence(teacher.log_conditional, student.log_conditional)
    return confidence_part + teacher.log_residual.exp() * conditional_part
