"""DKD: imitation taken apart into confidence and relations among incorrect classes, each with its own weight."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from tpkd.geometry.divergences import binary_kl_divergence, kl_divergence
from tpkd.geometry.split import split
from tpkd.objectives.base import Batch, Objective
from tpkd.objectives.cross_entropy import label_rows
from tpkd.objectives.reduction import Rows, check_temperature, check_weight, rowwise_loss


def decoupled_rows(
    student: Float[Tensor, "rows K"], teacher: Float[Tensor, "rows K"], labels: Int[Tensor, "rows"], temperature: float
) -> tuple[Float[Tensor, "rows"], Float[Tensor, "rows"]]:
    """The two halves of imitation at a temperature, target class and non-target classes, each times T^2.

    TCKD = kl(tau || rho) and NCKD = KL(q || r), everything taken at T; TCKD + (1 - tau) NCKD is full imitation. The
    gradients are T (rho - tau)(e_y - r) and T (r - q). Both come from log-odds and from log-softmax over the
    incorrect classes, so they stay finite at any lead.

    Example:
        >>> import torch
        >>> student, teacher = torch.tensor([[2.0, 0.5, -1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5, -1.0]])
        >>> decoupled_rows(student, teacher, torch.tensor([0]), 4.0)
        (tensor([0.1094]), tensor([0.5782]))
    """
    T = temperature
    p, t = split(student / T, labels), split(teacher / T, labels)
    target = binary_kl_divergence(t.log_odds, p.log_odds)
    non_target = kl_divergence(t.log_conditional, p.log_conditional)
    return T**2 * target, T**2 * non_target


def dkd_loss(
    student_logits: Float[Tensor, "..."],
    teacher_logits: Float[Tensor, "..."],
    labels: Int[Tensor, "..."],
    *,
    alpha: float = 1.0,
    beta: float = 8.0,
    temperature: float = 4.0,
    ce_weight: float = 1.0,
    kd_weight: float = 1.0,
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: int | Tensor | None = None,
) -> Float[Tensor, "..."]:
    """Decoupled distillation: separate weights for the teacher's confidence and for its relations among other classes.

    Paper: appendix E.1, L = ce_weight L_CE + kd_weight T^2 (alpha TCKD + beta NCKD) with T = 4, alpha = 1, beta = 8.
    The gradient of the bracket, with its T^2, is T [alpha (rho - tau)(e_y - r) + beta (r - q)].

    Shapes: logits `(K,)`, `(N, K)` or `(N, K, d1, ...)` with K >= 3, labels the same without K.

    Returns:
        A scalar, or for `"none"` a tensor of the shape of `labels`; see `tpkd_loss` for the last three arguments.

    Example:
        >>> import torch
        >>> student, teacher = torch.tensor([[2.0, 0.5, -1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5, -1.0]])
        >>> dkd_loss(student, teacher, torch.tensor([0]), ce_weight=0.0)
        tensor(4.7350)
    """
    check_temperature(temperature)
    weights = {"alpha": alpha, "beta": beta, "ce_weight": ce_weight, "kd_weight": kd_weight}
    for name, weight in weights.items():
        check_weight(name, weight)

    def row_loss(rows: Rows) -> Tensor:
        (teacher,) = rows.others
        target, non_target = decoupled_rows(rows.student, teacher, rows.labels, temperature)
        label = label_rows(rows.student, rows.labels)
        return ce_weight * label + kd_weight * (alpha * target + beta * non_target)

    return rowwise_loss(
        row_loss,
        student_logits,
        {"teacher_logits": teacher_logits},
        labels,
        ignore_index=ignore_index,
        reduction=reduction,
        num_items=num_items,
        min_classes=3,
    )


@dataclass
class DKD(Objective):
    """Decoupled distillation with the linear warm-up of its release.

    In epoch e, counted from 1, the distillation part weighs min(e / warmup_epochs, 1); the label part is never scaled.
    The paper trains text with 2 warm-up epochs and does not state the number for vision; 20 is the release's.
    """

    alpha: float = 1.0
    beta: float = 8.0
    temperature: float = 4.0
    ce_weight: float = 1.0
    kd_weight: float = 1.0
    warmup_epochs: int = 20

    name: ClassVar[str] = "dkd"
    summary: ClassVar[str] = "cross-entropy plus separate weights for teacher confidence and non-target relations"
    source: ClassVar[str] = "Zhao et al. 2022; mdistiller"
    reconstruction: ClassVar[str] = (
        "the vision warm-up length is not stated; 20 epochs as released (the paper's text: 2)"
    )

    def __post_init__(self) -> None:
        """Refuse settings that no run should start with."""
        check_temperature(self.temperature)
        for name in ("alpha", "beta", "ce_weight", "kd_weight", "warmup_epochs"):
            check_weight(name, getattr(self, name))

    @property
    def needs(self) -> frozenset[str]:
        """Labels and teacher, and the epoch while there is a warm-up."""
        always = frozenset({"labels", "teacher_logits"})
        return always | {"epoch"} if self.warmup_epochs else always

    @property
    def min_classes(self) -> int:
        """With two classes there are no relations between incorrect ones."""
        return 3

    def _losses(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.teacher_logits is not None
        assert batch.labels is not None
        loss = dkd_loss(
            batch.student_logits,
            batch.teacher_logits,
            batch.labels,
            alpha=self.alpha,
            beta=self.beta,
            temperature=self.temperature,
            ce_weight=self.ce_weight,
            kd_weight=self.kd_weight * self._warmup(batch.epoch),
            reduction=batch.reduction,
            num_items=batch.num_items,
        )
        return {"loss": loss}

    def _warmup(self, epoch: int | None) -> float:
        if not self.warmup_epochs:
            return 1.0
        assert epoch is not None
        return min(epoch / self.warmup_epochs, 1.0)
