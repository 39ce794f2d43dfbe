"""Cross-entropy: learning from labels alone."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from tpkd.objectives.base import Batch, Objective
from tpkd.objectives.reduction import rowwise_loss


def label_rows(student: Float[Tensor, "rows K"], labels: Int[Tensor, "rows"]) -> Float[Tensor, "rows"]:
    """-log p_y of each row, the label term of every method; its gradient is h = p - e_y.

    Example:
        >>> import torch
        >>> label_rows(torch.zeros(2, 4), torch.tensor([0, 3]))
        tensor([1.3863, 1.3863])
    """
    return functional.cross_entropy(student, labels, reduction="none")


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
    return rowwise_loss(
        lambda rows: label_rows(rows.student, rows.labels),
        student_logits,
        {},
        labels,
        ignore_index=ignore_index,
        reduction=reduction,
        num_items=num_items,
    )


@dataclass
class CrossEntropy(Objective):
    """Labels alone, the reference every other method is measured against."""

    name: ClassVar[str] = "ce"
    summary: ClassVar[str] = "labels alone, without a teacher"
    source: ClassVar[str] = "the standard classification loss"

    @property
    def needs(self) -> frozenset[str]:
        """Labels."""
        return frozenset({"labels"})

    def _losses(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.labels is not None
        loss = cross_entropy_loss(
            batch.student_logits, batch.labels, reduction=batch.reduction, num_items=batch.num_items
        )
        return {"loss": loss}
