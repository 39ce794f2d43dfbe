"""Monitoring a batch during training: how far the teacher is blocked on it, and what protection keeps."""

from jaxtyping import Float, Int
from torch import Tensor

from tpkd.geometry.inputs import check_ignore_index, class_indices
from tpkd.theory.diagnosis import diagnose

_FIELDS = ("blocked", "confidence", "label_loss", "conditional_loss", "transfer_cost", "compensation", "retention")
MIN_CLASSES = 3
"""With two classes there is no relation among incorrect ones."""


def observe(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Int[Tensor, "*batch"],
    *,
    ignore_index: int = -100,
) -> dict[str, Float[Tensor, ""]]:
    """Means over the valid rows of a batch, from logits the step has anyway; one sort of N x K numbers.

    One call per step, in any training loop; it leaves no graph.

    Args:
        student_logits: classes last, as everywhere in the theory.
        teacher_logits: of the same shape.
        labels: integer classes.
        ignore_index: the label of a row to leave out.

    Returns:
        The means of some fields of a diagnosis, `blocked` as `blocked_share`; zeros where no row is valid.

    Example:
        >>> import torch
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> seen = observe(student, teacher, torch.tensor([0]))
        >>> seen["blocked_share"], seen["transfer_cost"]
        (tensor(1.), tensor(0.6650))
    """
    labels = class_indices(labels)
    valid = labels != check_ignore_index(ignore_index)
    if not valid.any():
        return dict.fromkeys(("blocked_share", *_FIELDS[1:]), student_logits.new_zeros(()))
    state = diagnose(student_logits.detach()[valid], teacher_logits.detach()[valid], labels[valid])
    means = {name: getattr(state, name).float().mean() for name in _FIELDS}
    return {"blocked_share": means.pop("blocked"), **means}
