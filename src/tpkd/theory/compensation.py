"""What exact conditional transfer costs in confidence, and the path that pays no more."""

from jaxtyping import Float, Int
from torch import Tensor

from tpkd.theory.pair import Pair, split_pair


def transfer_cost(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """The least rise of the correct class's log-odds that lets the student take over the teacher's relations whole.

    Paper: thm:cost, D_inf(q || r) = max_j log(q_j / r_j): the most underestimated competitor sets the price. Zero
    exactly when r = q.

    Shapes: logits `(*batch, K)`, labels `(*batch)`; returns `(*batch)`, in nats.

    Example:
        >>> import torch
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> transfer_cost(student, teacher, torch.tensor([0]))
        tensor([0.6650])
    """
    return pair_transfer_cost(split_pair(student_logits, teacher_logits, labels))


def pair_transfer_cost(pair: Pair) -> Float[Tensor, "*batch"]:
    """`transfer_cost` of predictions that are already split.

    Example:
        >>> import torch
        >>> pair_transfer_cost(split_pair(torch.zeros(1, 3), torch.zeros(1, 3), torch.tensor([0])))
        tensor([0.])
    """
    return pair.log_ratio.amax(-1).clamp(min=0)


def min_log_odds(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """The log-odds of the least confidence that permits exact transfer; exact where the confidence itself rounds to one.

    Paper: eq:mincost, logit(a_min) = logit(rho) + D_inf(q || r).

    Example:
        >>> import torch
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> min_log_odds(student, teacher, torch.tensor([0])).exp()
        tensor([17.5000])
    """
    pair = split_pair(student_logits, teacher_logits, labels)
    return pair.student.log_odds + pair_transfer_cost(pair)


def min_confidence(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """The least confidence in the label that permits exact transfer with no margin lowered.

    Paper: section 4.2, a_min = rho R / (1 - rho + rho R) with R = max_j q_j / r_j, the sigmoid of `min_log_odds`.

    Example:
        >>> import torch
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> min_confidence(student, teacher, torch.tensor([0]))
        tensor([0.9459])
    """
    return min_log_odds(student_logits, teacher_logits, labels).sigmoid()
