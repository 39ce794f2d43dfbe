"""DKD: imitation taken apart into confidence and relations among incorrect classes, each with its own weight."""

from collections.abc import Set as AbstractSet

from jaxtyping import Float, Int
from torch import Tensor

from tpkd.geometry.divergences import binary_kl_divergence, kl_divergence
from tpkd.geometry.split import split
from tpkd.objectives.base import PaperAccuracy
from tpkd.objectives.cross_entropy import label_rows
from tpkd.objectives.reduction import check_weight
from tpkd.objectives.registry import register
from tpkd.objectives.row_objective import RowObjective


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


@register
class DKD(RowObjective):
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

    name = "dkd"
    title = "DKD"
    summary = "cross-entropy plus separate weights for teacher confidence and non-target relations"
    source = "Zhao et al. 2022; mdistiller"
    teacher_average = "probabilities"
    reconstruction = "the vision warm-up length is not stated; 20 epochs as released (the paper's text: 2)"
    min_classes = 3  # with two classes there are no relations between incorrect ones
    paper_accuracy = PaperAccuracy(vision=(84.53, 0.09), text=(93.59, 0.20))

    def check(self) -> None:
        """Weights and the warm-up are not negative."""
        for name in ("alpha", "beta", "warmup_epochs"):
            check_weight(name, getattr(self, name))

    @property
    def needs(self) -> AbstractSet[str]:
        """Labels and teacher, and the epoch while there is a warm-up."""
        always = frozenset({"labels", "teacher_logits"})
        return always | {"epoch"} if self.warmup_epochs else always

    def row_losses(self, student: Tensor, teacher: Tensor, labels: Tensor, epoch: int | None = None) -> Tensor:
        """ce_weight L_CE + kd_weight T^2 (alpha TCKD + beta NCKD), the second part under its warm-up."""
        target, non_target = decoupled_rows(student, teacher, labels, self.temperature)
        kd_weight = self.kd_weight * (1.0 if epoch is None else min(epoch / self.warmup_epochs, 1.0))
        return self.ce_weight * label_rows(student, labels) + kd_weight * (self.alpha * target + self.beta * non_target)


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
    sample_weights: Float[Tensor, "..."] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: float | Tensor | None = None,
) -> Float[Tensor, "..."]:
    """Decoupled distillation: separate weights for the teacher's confidence and for its relations among other classes.

    Paper: appendix E.1, L = ce_weight L_CE + kd_weight T^2 (alpha TCKD + beta NCKD) with T = 4, alpha = 1, beta = 8.
    The gradient of the bracket, with its T^2, is T [alpha (rho - tau)(e_y - r) + beta (r - q)].

    Shapes: logits `(K,)`, `(N, K)` or `(N, K, d1, ...)` with K >= 3, labels the same without K.

    Returns:
        A scalar, or for `"none"` a tensor of the shape of `labels`; see `tpkd_loss` for the last four arguments.

    Example:
        >>> import torch
        >>> student, teacher = torch.tensor([[2.0, 0.5, -1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5, -1.0]])
        >>> dkd_loss(student, teacher, torch.tensor([0]), ce_weight=0.0)
        tensor(4.7350)
    """
    return DKD(alpha, beta, temperature, ce_weight, kd_weight, warmup_epochs=0)(
        student_logits,
        teacher_logits,
        labels,
        ignore_index=ignore_index,
        reduction=reduction,
        num_items=num_items,
        sample_weights=sample_weights,
    )
