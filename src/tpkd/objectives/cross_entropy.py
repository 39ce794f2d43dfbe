"""Cross-entropy: learning from labels alone."""

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from tpkd.objectives.base import PaperAccuracy
from tpkd.objectives.registry import register
from tpkd.objectives.row_objective import RowObjective


def label_rows(student: Float[Tensor, "rows K"], labels: Int[Tensor, "rows"]) -> Float[Tensor, "rows"]:
    """-log p_y of each row, the label term of every method; its gradient is h = p - e_y.

    Example:
        >>> import torch
        >>> label_rows(torch.zeros(2, 4), torch.tensor([0, 3]))
        tensor([1.3863, 1.3863])
    """
    return functional.cross_entropy(student, labels, reduction="none")


@register
class CrossEntropy(RowObjective):
    """Labels alone, the reference every other method is measured against."""

    name = "ce"
    title = "CE"
    summary = "labels alone, without a teacher"
    source = "the standard classification loss"
    needs = frozenset({"labels"})
    ablation = ("CE", "h")
    paper_accuracy = PaperAccuracy(vision=(87.37, 0.07), text=(93.24, 0.28))

    def row_losses(self, student: Tensor, teacher: None, labels: Tensor) -> Tensor:
        """-log p_y."""
        return label_rows(student, labels)


def cross_entropy_loss(
    student_logits: Float[Tensor, "..."],
    labels: Int[Tensor, "..."],
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: int | Tensor | None = None,
) -> Float[Tensor, "..."]:
    """Cross-entropy with the masks and the denominator that all losses here share.

    Paper: section 3, L_CE = -log p_y, with gradient h = p - e_y.

    Shapes: logits `(K,)`, `(N, K)` or `(N, K, d1, ...)` with K >= 2, labels the same without K.

    Returns:
        A scalar, or for `"none"` a tensor of the shape of `labels`; see `tpkd_loss` for the last three arguments.

    Example:
        >>> import torch
        >>> cross_entropy_loss(torch.tensor([[2.0, 0.5, -1.0, 0.0]]), torch.tensor([0]))
        tensor(0.3423)
    """
    return CrossEntropy()(
        student_logits, None, labels, ignore_index=ignore_index, reduction=reduction, num_items=num_items
    )
