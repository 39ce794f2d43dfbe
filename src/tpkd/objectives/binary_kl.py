"""The losses that DHKD trains its second head with: a yes/no comparison with the teacher for each class."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tpkd.geometry.divergences import binary_kl_divergence
from tpkd.objectives.row_objective import RowObjective


def log_cosh_rows(
    student: Float[Tensor, "rows K"], teacher: Float[Tensor, "rows K"], temperature: float
) -> Float[Tensor, "rows"]:
    """T^2 sum_k log cosh((student_k - teacher_k) / 2T) of each row.

    Example:
        >>> log_cosh_rows(torch.tensor([[1.5, -0.5, 0.0, 0.5]]), torch.tensor([[1.0, 0.0, 0.5, -1.0]]), 2.0)
        tensor([0.3684])
    """
    x = ((student - teacher) / (2 * temperature)).abs()
    # log cosh x = |x| + log((1 + exp(-2|x|)) / 2): no overflow, and expm1 keeps the digits of small differences.
    return temperature**2 * (x + torch.log1p(torch.expm1(-2 * x) / 2)).sum(-1)


@dataclass
class _BinaryKLNorm(RowObjective):
    temperature: float

    needs = frozenset({"teacher_logits"})

    def row_losses(self, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
        return log_cosh_rows(student, teacher, self.temperature)


class _BinaryKL(_BinaryKLNorm):
    def row_losses(self, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
        T = self.temperature
        return T**2 * binary_kl_divergence(teacher / T, student / T).sum(-1)


def binary_kl_norm_loss(
    student_logits: Float[Tensor, "..."],
    teacher_logits: Float[Tensor, "..."],
    labels: Int[Tensor, "..."] | None = None,
    *,
    temperature: float = 2.0,
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: int | Tensor | None = None,
) -> Float[Tensor, "..."]:
    """The loss DHKD's released commands train the second head with: robust matching of raw logits.

    Paper: appendix E.1, with T = 2. For each class the yes/no distribution sigmoid((a - z^T)/T) is compared with a fair
    coin; summed over classes and times T^2 this is T^2 sum_k log cosh((a_k - z^T_k) / 2T), with gradient
    (T/2) tanh((a - z^T) / 2T). Unlike a loss of probabilities it sees a constant added to all logits.

    Shapes: logits `(K,)`, `(N, K)` or `(N, K, d1, ...)` with K >= 2, labels (only for masking) the same without K.

    Returns:
        A scalar, or for `"none"` one loss a position; see `tpkd_loss` for the last three arguments.

    Example:
        >>> binary_kl_norm_loss(torch.tensor([[1.5, -0.5, 0.0, 0.5]]), torch.tensor([[1.0, 0.0, 0.5, -1.0]]))
        tensor(0.3684)
    """
    return _BinaryKLNorm(temperature)(
        student_logits, teacher_logits, labels, ignore_index=ignore_index, reduction=reduction, num_items=num_items
    )


def binary_kl_loss(
    student_logits: Float[Tensor, "..."],
    teacher_logits: Float[Tensor, "..."],
    labels: Int[Tensor, "..."] | None = None,
    *,
    temperature: float = 2.0,
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: int | Tensor | None = None,
) -> Float[Tensor, "..."]:
    """DHKD's plain form: a yes/no divergence from the teacher for each class on its own.

    L = T^2 sum_k KL(Bernoulli(sigmoid(z^T_k / T)) || Bernoulli(sigmoid(a_k / T))), with gradient
    T (sigmoid(a / T) - sigmoid(z^T / T)). Arguments and shapes are those of `binary_kl_norm_loss`.

    Example:
        >>> binary_kl_loss(torch.tensor([[1.5, -0.5, 0.0, 0.5]]), torch.tensor([[1.0, 0.0, 0.5, -1.0]]))
        tensor(0.3657)
    """
    return _BinaryKL(temperature)(
        student_logits, teacher_logits, labels, ignore_index=ignore_index, reduction=reduction, num_items=num_items
    )
