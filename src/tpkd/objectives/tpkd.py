"""The protected loss: its gradient is the paper's direction, its value what is left to learn; and its controls."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from tpkd.geometry.directions import check_beta, named_direction
from tpkd.geometry.divergences import conditional_loss, imitation_loss, label_loss
from tpkd.geometry.inputs import check_ignore_index
from tpkd.objectives.base import Batch, Objective
from tpkd.objectives.injection import inject_direction, refuse_transforms
from tpkd.objectives.reduction import Rows, check_reduction, rowwise_loss
from tpkd.objectives.tpkd_fast import fast_tpkd_loss

_Value = Callable[[Tensor, Tensor, Tensor, float], Tensor]

_CONTROL_VALUES: dict[str, _Value] = {
    "tpkd-no-projection": lambda z, zt, y, beta: label_loss(z, y) + beta * conditional_loss(z, zt, y),
    "tpkd-no-ce": lambda z, zt, y, beta: beta * conditional_loss(z, zt, y),
    "safe-full-kl": lambda z, zt, y, beta: label_loss(z, y) + beta * imitation_loss(z, zt, y),
    "compensation-only": lambda z, zt, y, beta: label_loss(z, y),
}


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
    return fast_tpkd_loss(student_logits, teacher_logits, labels, float(beta), ignore_index, reduction, num_items)


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


def direction_loss(
    name: str,
    student_logits: Float[Tensor, "..."],
    teacher_logits: Float[Tensor, "..."],
    labels: Int[Tensor, "..."],
    *,
    beta: float = 0.5,
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: int | Tensor | None = None,
) -> Float[Tensor, "..."]:
    """The loss of TPKD or of a control by name: its gradient is `tpkd.geometry.named_direction`.

    Paper: section 6.2. Values: `tpkd` and `tpkd-no-projection` L_CE + beta L_cond; `tpkd-no-ce` beta L_cond;
    `safe-full-kl` L_CE + beta L_T; `compensation-only` L_CE. Arguments are those of `tpkd_loss`.

    Example:
        >>> import torch
        >>> direction_loss("compensation-only", torch.zeros(1, 3), torch.zeros(1, 3), torch.tensor([0]))
        tensor(1.0986)
    """
    if name == "tpkd":
        return tpkd_loss(
            student_logits,
            teacher_logits,
            labels,
            beta=beta,
            ignore_index=ignore_index,
            reduction=reduction,
            num_items=num_items,
        )
    check_beta(beta)
    refuse_transforms(student_logits)
    if name not in _CONTROL_VALUES:
        raise ValueError(f"name: expected one of tpkd, {', '.join(_CONTROL_VALUES)}, got {name!r}")

    def row_loss(rows: Rows) -> Tensor:
        (teacher,) = rows.others
        student = rows.student.detach()
        values = _CONTROL_VALUES[name](student, teacher, rows.labels, beta)
        if not rows.student.requires_grad:
            return values
        direction = named_direction(name, student, teacher, rows.labels, beta=beta)
        return inject_direction(rows.student, direction, values)

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
class _DirectionObjective(Objective):
    """TPKD and its controls differ by the name of their direction alone."""

    beta: float = 0.5

    source: ClassVar[str] = "Yuan & Tao, Task-Preserving Knowledge Distillation"

    def __post_init__(self) -> None:
        check_beta(self.beta)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"labels", "teacher_logits"})

    @property
    def min_classes(self) -> int:
        return 3

    def _losses(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.teacher_logits is not None
        assert batch.labels is not None
        loss = direction_loss(
            self.name,
            batch.student_logits,
            batch.teacher_logits,
            batch.labels,
            beta=self.beta,
            reduction=batch.reduction,
            num_items=batch.num_items,
        )
        return {"loss": loss}


class TPKD(_DirectionObjective):
    """The protected update."""

    name: ClassVar[str] = "tpkd"
    summary: ClassVar[str] = "label gradient kept whole, plus half the nearest safe conditional direction"


class TPKDWithoutCE(_DirectionObjective):
    """Control: conditional learning alone."""

    name: ClassVar[str] = "tpkd-no-ce"
    summary: ClassVar[str] = "control: the safe conditional direction without the label gradient"


class SafeFullKL(_DirectionObjective):
    """Control: the right protection around the wrong teacher signal."""

    name: ClassVar[str] = "safe-full-kl"
    summary: ClassVar[str] = "control: label gradient plus the projected full-imitation gradient"


class TPKDWithoutProjection(_DirectionObjective):
    """Control: the right teacher signal without protection."""

    name: ClassVar[str] = "tpkd-no-projection"
    summary: ClassVar[str] = "control: label gradient plus the unprotected conditional gradient"


class CompensationOnly(_DirectionObjective):
    """Control: the extra confidence of TPKD without its conditional learning."""

    name: ClassVar[str] = "compensation-only"
    summary: ClassVar[str] = "control: label gradient plus TPKD's push on the correct class alone"
