"""A student and its teacher, whole or truncated: what a pair comes down to over the incorrect classes."""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from tpkd.geometry.correct import check_pair, correct_mask, drop_target
from tpkd.geometry.inputs import computation_dtype
from tpkd.geometry.top_k import TopK, check_top_k_batch, complete, what_is_known

Teaching = tuple[Tensor, Tensor | TopK, Tensor]


def check_teaching(
    student_logits: Tensor, teacher_logits: Tensor | TopK, labels: Tensor, *, masks: bool = False
) -> Teaching:
    """Check a student, its whole or truncated teacher, and labels; return them in the dtype to compute in."""
    if not isinstance(teacher_logits, TopK):
        return check_pair(student_logits, teacher_logits, labels, masks=masks)
    y = check_top_k_batch(student_logits, teacher_logits, labels)
    return student_logits.to(computation_dtype(student_logits, teacher_logits.log_probs)), teacher_logits, y


def conditional_logs(
    z: Float[Tensor, "*batch K"], zt: Float[Tensor, "*batch K"] | TopK, y: Shaped[Tensor, "..."], temperature: float
) -> tuple[Float[Tensor, "*batch K-1"], Float[Tensor, "*batch K-1"]]:
    """log r_T and log q_T, in the places of `drop_target`, of what `check_teaching` returned.

    EXTENSIONS 2: a truncated teacher is completed first, then softened. Where the label's log-probability is not
    known, both are restricted to the kept classes.

    Example:
        >>> z, y = torch.tensor([[1.0, 0.0, 0.0, 0.0]]), torch.tensor([0])
        >>> log_r, log_q = conditional_logs(z, TopK(torch.tensor([[0.1, 0.3]]).log(), torch.tensor([[1, 2]])), y, 1.0)
        >>> log_r.exp(), log_q.exp()
        (tensor([[0.5000, 0.5000, 0.0000]]), tensor([[0.2500, 0.7500, 0.0000]]))
    """
    if isinstance(zt, TopK):
        z, zt = completed_pair(z, zt, y)
    return log_conditional(z, y, temperature), log_conditional(zt, y, temperature)


def completed_pair(
    z: Float[Tensor, "*batch K"], top_k: TopK, y: Int[Tensor, "*batch"]
) -> tuple[Float[Tensor, "*batch K"], Float[Tensor, "*batch K"]]:
    """Student and completed teacher over the classes that a truncated teacher speaks of, -inf at the others.

    EXTENSIONS 2: it speaks of all classes where the label's log-probability is known, else of those that it kept. Where
    it says nothing about incorrect classes, because it gives all to the label or kept none, it is the student itself.

    Example:
        >>> top_k = TopK(torch.tensor([[0.1, 0.3]]).log(), torch.tensor([[1, 2]]))
        >>> completed_pair(torch.zeros(1, 4), top_k, torch.tensor([0]))[0]
        tensor([[-inf, 0., 0., -inf]])
    """
    known = what_is_known(top_k, y, z.shape[-1], z.dtype)
    outside = ~known.has_label.unsqueeze(-1) & ~known.kept
    teacher = torch.where(outside, -torch.inf, complete(known, z.detach()))
    silent = torch.where(correct_mask(y, z.shape[-1]), -torch.inf, teacher).amax(-1, keepdim=True) == -torch.inf
    return torch.where(outside & ~silent, -torch.inf, z), torch.where(silent, z.detach(), teacher)


def log_conditional(
    logits: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."], temperature: float
) -> Float[Tensor, "*batch K-1"]:
    """log r_T, the log-softmax of the incorrect logits over a temperature, in the places of `drop_target`.

    Example:
        >>> import torch
        >>> log_conditional(torch.tensor([[9.0, 2.0, 0.0]]), torch.tensor([0]), 2.0).exp()
        tensor([[0.7311, 0.2689]])
    """
    others = drop_target(logits, labels)
    return (others if temperature == 1 else others / temperature).log_softmax(-1)
