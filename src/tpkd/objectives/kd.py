"""KD: cross-entropy plus imitation of the whole softened teacher distribution."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from tpkd.geometry.divergences import kl_divergence
from tpkd.objectives.base import Batch, Objective
from tpkd.objectives.cross_entropy import label_rows
from tpkd.objectives.reduction import Rows, check_temperature, check_weight, rowwise_loss


def imitation_rows(
    student: Float[Tensor, "rows K"], teacher: Float[Tensor, "rows K"], temperature: float
) -> Float[Tensor, "rows"]:
    """T^2 KL(softmax(teacher / T) || softmax(student / T)) of each row; its gradient is T (p^T - t^T).

    Example:
        >>> import torch
        >>> imitation_rows(torch.tensor([[2.0, 0.5, -1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5, -1.0]]), 4.0)
        tensor([0.5107])
    """
    T = temperature
    return T**2 * kl_divergence((teacher / T).log_softmax(-1), (student / T).log_softmax(-1))


def kd_loss(
    student_logits: Float[Tensor, "..."],
    teacher_logits: Float[Tensor, "..."],
    labels: Int[Tensor, "..."],
    *,
    temperature: float = 4.0,
    ce_weight: float = 1.0,
    kd_weight: float = 1.0,
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: int | Tensor | None = None,
) -> Float[Tensor, "..."]:
    """Knowledge distillation: match the teacher's softened distribution while fitting the labels.

    Paper: appendix E.1, L = ce_weight L_CE + kd_weight T^2 KL(t^T || p^T) with T = 4. The gradient of the second term
    is T (p^T - t^T); the label term sees unscaled logits.

    Shapes: logits `(K,)`, `(N, K)` or `(N, K, d1, ...)` with K >= 2, labels the same without K.

    Returns:
        A scalar, or for `"none"` a tensor of the shape of `labels`; see `tpkd_loss` for the last three arguments.

    Example:
        >>> import torch
        >>> student, teacher = torch.tensor([[2.0, 0.5, -1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5, -1.0]])
        >>> kd_loss(student, teacher, torch.tensor([0]))
        tensor(0.8531)
    """
    check_temperature(temperature)
    check_weight("ce_weight", ce_weight)
    check_weight("kd_weight", kd_weight)

    def row_loss(rows: Rows) -> Tensor:
        (teacher,) = rows.others
        imitation = imitation_rows(rows.student, teacher, temperature)
        return ce_weight * label_rows(rows.student, rows.labels) + kd_weight * imitation

    return rowwise_loss(
        row_loss,
        student_logits,
        {"teacher_logits": teacher_logits},
        labels,
        ignore_index=ignore_index,
        reduction=reduction,
        num_items=num_items,
    )


@dataclass
class KD(Objective):
    """Labels and the whole softened teacher."""

    temperature: float = 4.0
    ce_weight: float = 1.0
    kd_weight: float = 1.0

    name: ClassVar[str] = "kd"
    summary: ClassVar[str] = "cross-entropy plus imitation of the softened teacher"
    source: ClassVar[str] = "Hinton et al. 2015; mdistiller"
    reconstruction: ClassVar[str] = (
        "the label weight: the paper states a distillation coefficient of 1, read as CE + KD"
    )

    def __post_init__(self) -> None:
        """Refuse settings that no run should start with."""
        check_temperature(self.temperature)
        check_weight("ce_weight", self.ce_weight)
        check_weight("kd_weight", self.kd_weight)

    @property
    def needs(self) -> frozenset[str]:
        """Labels and teacher."""
        return frozenset({"labels", "teacher_logits"})

    def _losses(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.teacher_logits is not None
        assert batch.labels is not None
        loss = kd_loss(
            batch.student_logits,
            batch.teacher_logits,
            batch.labels,
            temperature=self.temperature,
            ce_weight=self.ce_weight,
            kd_weight=self.kd_weight,
            reduction=batch.reduction,
            num_items=batch.num_items,
        )
        return {"loss": loss}
