"""When closer imitation must give something back: the blocking test, the price of moving, and the blocked region."""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpkd.theory.pair import Pair, split_pair


def is_blocked(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Int[Tensor, "*batch"],
    *,
    tolerance: float = 0.0,
) -> Bool[Tensor, "*batch"]:
    """Whether the student is already the closest full imitation that keeps every margin.

    Paper: thm:block. The test p_j <= t_j for every incorrect class, in log space and without underflow:
    log(1 - rho) - log(1 - tau) <= min_j log(q_j / r_j), up to `tolerance` in the logarithm.

    Shapes: logits `(*batch, K)`, labels `(*batch)`; returns `(*batch)`.

    Example:
        >>> import torch
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> is_blocked(student, teacher, torch.tensor([0])), is_blocked(teacher, student, torch.tensor([0]))
        (tensor([True]), tensor([False]))
    """
    return pair_is_blocked(split_pair(student_logits, teacher_logits, labels), tolerance=tolerance)


def pair_is_blocked(pair: Pair, *, tolerance: float = 0.0) -> Bool[Tensor, "*batch"]:
    """`is_blocked` of predictions that are already split.

    Example:
        >>> import torch
        >>> pair_is_blocked(split_pair(torch.zeros(1, 3), torch.zeros(1, 3), torch.tensor([0])))
        tensor([True])
    """
    return pair.student.log_residual - pair.teacher.log_residual <= pair.log_ratio.amin(-1) + tolerance
