"""The protected loss: its gradient is the paper's direction, its value what is left to learn."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tpkd.geometry.directions import check_beta, named_direction
from tpkd.geometry.divergences import conditional_loss, label_loss
from tpkd.geometry.inputs import check_ignore_index
from tpkd.objectives.base import PaperAccuracy
from tpkd.objectives.injection import inject_direction, refuse_transforms
from tpkd.objectives.reduction import (
    as_rows,
    check_class_axis,
    check_reduction,
    denominator,
    flat_labels,
    logit_rows,
    reduce_rows,
)
from tpkd.objectives.registry import register
from tpkd.objectives.row_objective import RowObjective
from tpkd.objectives.tpkd_fast import values_and_direction
from tpkd.objectives.tpkd_kernel import kernel_takes
from tpkd.objectives.tpkd_traced import traced_tpkd_loss


def tpkd_loss(
    student_logits: Float[Tensor, "..."],
    teacher_logits: Float[Tensor, "..."],
    labels: Int[Tensor, "..."],
    *,
    beta: float = 0.5,
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: int | Tensor | None = None,
) -> Float[Tensor, "..."]:
    """Learn from labels and teacher without giving back any margin that the label step would have won.

    Paper: eq:surrogate. The gradient with respect to the student logits is the direction v = h + beta d of eq:core,
    reduced; the value is label loss + beta * conditional loss, which is never negative and zero exactly when both kinds
    of learning are complete. No temperature and no weights to search. A class that both networks rule out, by a logit
    of -inf, counts as if it were not there.

    Args:
        student_logits: `(K,)`, `(N, K)` or `(N, K, d1, ...)` with K >= 3.
        teacher_logits: the same shape; no gradient flows to it.
        labels: integer classes, the same shape without K.
        beta: weight of the conditional direction; the paper's is 1/2.
        ignore_index: positions with this label contribute exactly nothing, whatever their logits hold.
        reduction: `"mean"` over valid positions, `"sum"`, or `"none"`.
        num_items: the count of valid positions over the whole effective batch, as denominator of `"mean"`; with it,
            gradient accumulation and data parallelism are exact under any mask.

    Returns:
        A scalar, or for `"none"` a tensor of the shape of `labels`; float32 for half-precision logits. It supports one
        backward pass: `create_graph=True`, a second backward through the same loss, forward-mode differentiation and
        the transforms of `torch.func` raise `RuntimeError`.

    Example:
        >>> import torch
        >>> student = torch.tensor([[2.0, 0.5, -1.0, 0.0]], requires_grad=True)
        >>> teacher, labels = torch.tensor([[1.0, 0.0, 0.5, -1.0]]), torch.tensor([0])
        >>> loss = tpkd_loss(student, teacher, labels)
        >>> loss.backward()
        >>> loss.detach(), student.grad
        (tensor(0.6084), tensor([[-0.3960,  0.2660, -0.0708,  0.2009]]))
    """
    check_beta(beta)
    refuse_transforms(student_logits)
    beta = float(beta)
    class_axis = check_class_axis(student_logits, {"teacher_logits": teacher_logits}, min_classes=3)
    check_reduction(reduction, num_items)
    if torch.compiler.is_compiling() and not kernel_takes(student_logits, teacher_logits, labels):
        rows = as_rows(student_logits, {"teacher_logits": teacher_logits}, labels, ignore_index=ignore_index)
        return reduce_rows(traced_tpkd_loss(rows, beta=beta), rows, reduction=reduction, num_items=num_items)
    shape = student_logits.shape
    z, zt = logit_rows(student_logits, class_axis), logit_rows(teacher_logits.detach(), class_axis)
    y, valid = flat_labels(labels, shape[:class_axis] + shape[class_axis + 1 :], shape[class_axis], ignore_index)
    count = denominator(z.shape[0], valid, num_items) if reduction == "mean" else 1
    # A known weight of all rows goes straight into the gradient. Not in float16, which would lose small entries that a
    # loss scale saves: there, as with a weight for each row, the backward pass multiplies.
    is_weighted = isinstance(count, int) and reduction != "none" and z.dtype != torch.float16
    weight = 1 / int(count) if is_weighted else 1.0
    wanted = z.requires_grad and torch.is_grad_enabled()
    values, direction, total = values_and_direction(z.detach(), zt, y, valid, beta, weight, wanted)
    losses = total if is_weighted else values
    if direction is not None:
        losses = inject_direction(z, direction, losses)
    if is_weighted:
        return losses
    return losses.reshape(labels.shape) if reduction == "none" else losses.sum() / count


class TPKDLoss(nn.Module):
    """`tpkd_loss` as a module without parameters.

    Example:
        >>> import torch
        >>> criterion = TPKDLoss()
        >>> criterion(torch.zeros(2, 3), torch.zeros(2, 3), torch.tensor([0, 1]))
        tensor(1.0986)
    """

    def __init__(self, beta: float = 0.5, ignore_index: int = -100, reduction: str = "mean") -> None:
        """Keep the settings of every call."""
        super().__init__()
        check_beta(beta)
        check_reduction(reduction, None)
        self.beta = beta
        self.ignore_index = check_ignore_index(ignore_index)
        self.reduction = reduction

    def forward(
        self, student_logits: Tensor, teacher_logits: Tensor, labels: Tensor, num_items: int | Tensor | None = None
    ) -> Tensor:
        """The loss of one call; see `tpkd_loss`."""
        return tpkd_loss(
            student_logits,
            teacher_logits,
            labels,
            beta=self.beta,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            num_items=num_items,
        )

    def extra_repr(self) -> str:
        """The settings, for `print(model)`."""
        return f"beta={self.beta}, ignore_index={self.ignore_index}, reduction={self.reduction!r}"


@dataclass
class DirectionObjective(RowObjective):
    """TPKD or a control: its gradient is `tpkd.geometry.named_direction` of its name, its value a loss to monitor.

    Paper: section 6.2.
    """

    beta: float = 0.5

    source = "Yuan & Tao, Task-Preserving Knowledge Distillation"
    min_classes = 3

    def check(self) -> None:
        """The coefficient is not negative."""
        check_beta(self.beta)

    def __call__(self, student_logits: Tensor, *others: Any, **tail: Any) -> Tensor:
        """The loss as a function; refuses what replaces the backward pass."""
        refuse_transforms(student_logits)
        return super().__call__(student_logits, *others, **tail)

    def row_losses(self, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
        """The values, with the direction as their gradient."""
        logits = student.detach()
        values = self.row_values(logits, teacher, labels)
        if not student.requires_grad:
            return values
        direction = named_direction(self.name, logits, teacher, labels, beta=self.beta)
        return inject_direction(student, direction, values)

    def row_values(self, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
        """L_CE + beta L_cond."""
        return label_loss(student, labels) + self.beta * conditional_loss(student, teacher, labels)


@register
class TPKD(DirectionObjective):
    """The protected update."""

    name = "tpkd"
    title = "TPKD"
    summary = "label gradient kept whole, plus half the nearest safe conditional direction"
    ablation = ("TPKD", "h + d/2")
    paper_accuracy = PaperAccuracy(vision=(88.05, 0.12), text=(93.81, 0.27))

    def __call__(self, *batch: Any, **tail: Any) -> Tensor:
        """`tpkd_loss`: the same rows, many times faster."""
        return tpkd_loss(*batch, beta=self.beta, **tail)
