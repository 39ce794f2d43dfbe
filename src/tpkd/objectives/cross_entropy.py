"""Cross-entropy: learning from labels alone."""

from jaxtyping import Float, Shaped
from torch import Tensor
from torch.nn import functional

from tpkd.objectives.base import PaperAccuracy
from tpkd.objectives.registry import register
from tpkd.objectives.row_objective import RowObjective


def label_rows(student: Float[Tensor, "rows K"], labels: Shaped[Tensor, "..."]) -> Float[Tensor, "rows"]:
    """-log p_y of each row, the label term of every method; its gradient is h = p - e_y.

    Labels are classes, or probabilities s of the shape of the student: then -sum_j s_j log p_j, with gradient p - s.

    Example:
        >>> import torch
        >>> label_rows(torch.zeros(2, 4), torch.tensor([0, 3]))
        tensor([1.3863, 1.3863])
    """
    if not labels.is_floating_point():
        return functional.cross_entropy(student, labels, reduction="none")
    # A class without probability counts nothing, also where the student rules it out.
    log_probs = student.log_softmax(-1).masked_fill(labels == 0, 0.0)
    return -(labels * log_probs).sum(-1)


@register
class CrossEntropy(RowObjective):
    """Labels alone, the reference every other method is measured against."""

    name = "ce"
    title = "CE"
    summary = "labels alone, without a teacher"
    source = "the standard classification loss"
    needs = frozenset({"labels"})
    takes_soft_labels = True
    takes_top_k = True  # it does not ask the teacher
    ablation = ("CE", "h")
    paper_accuracy = PaperAccuracy(vision=(87.37, 0.07), text=(93.24, 0.28))

    def row_losses(self, student: Tensor, teacher: None, labels: Tensor) -> Tensor:
        """-log p_y."""
        return label_rows(student, labels)


def cross_entropy_loss(
    student_logits: Float[Tensor, "..."],
    labels: Shaped[Tensor, "..."],
    *,
    sample_weights: Float[Tensor, "..."] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: float | Tensor | None = None,
) -> Float[Tensor, "..."]:
    """Cross-entropy with the masks and the denominator that all losses here share.

    Paper: section 3, L_CE = -log p_y, with gradient h = p - e_y.

    Shapes: logits `(K,)`, `(N, K)` or `(N, K, d1, ...)` with K >= 2, labels the same without K.

    Returns:
        A scalar, or for `"none"` a tensor of the shape of `labels`; see `tpkd_loss` for the last four arguments.

    Example:
        >>> import torch
        >>> cross_entropy_loss(torch.tensor([[2.0, 0.5, -1.0, 0.0]]), torch.tensor([0]))
        tensor(0.3423)
    """
    return CrossEntropy()(
        student_logits,
        None,
        labels,
        ignore_index=ignore_index,
        reduction=reduction,
        num_items=num_items,
        sample_weights=sample_weights,
    )
