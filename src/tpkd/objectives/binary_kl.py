"""The losses that DHKD trains its second head with: a yes/no comparison with the teacher for each class."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tpkd.geometry.divergences import binary_kl_divergence
from tpkd.objectives.row_objective import RowObjective


@dataclass
class BinaryKLNorm(RowObjective):
    """The loss DHKD's released commands train the second head with: robust matching of raw logits.

    Paper: appendix E.1, with T = 2. For each class the yes/no distribution sigmoid((a - z^T)/T) is compared with a fair
    coin; summed over classes and times T^2 this is T^2 sum_k log cosh((a_k - z^T_k) / 2T), with gradient
    (T/2) tanh((a - z^T) / 2T). Unlike a loss of probabilities it sees a constant added to all logits.

    Called like `kl_dist_loss`: labels only mask.

    Example:
        >>> BinaryKLNorm()(torch.tensor([[1.5, -0.5, 0.0, 0.5]]), torch.tensor([[1.0, 0.0, 0.5, -1.0]]))
        tensor(0.3684)
    """

    temperature: float = 2.0

    needs = frozenset({"teacher_logits"})

    def row_losses(self, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
        """T^2 sum_k log cosh((student_k - teacher_k) / 2T)."""
        x = ((student - teacher) / (2 * self.temperature)).abs()
        # log cosh x = |x| + log((1 + exp(-2|x|)) / 2): no overflow, and expm1 keeps the digits of small differences.
        return self.temperature**2 * (x + torch.log1p(torch.expm1(-2 * x) / 2)).sum(-1)


class BinaryKL(BinaryKLNorm):
    """DHKD's plain form: a yes/no divergence from the teacher for each class on its own.

    L = T^2 sum_k KL(Bernoulli(sigmoid(z^T_k / T)) || Bernoulli(sigmoid(a_k / T))), with gradient
    T (sigmoid(a / T) - sigmoid(z^T / T)).

    Example:
        >>> BinaryKL()(torch.tensor([[1.5, -0.5, 0.0, 0.5]]), torch.tensor([[1.0, 0.0, 0.5, -1.0]]))
        tensor(0.3657)
    """

    def row_losses(self, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
        """T^2 sum_k of the divergence for class k."""
        T = self.temperature
        return T**2 * binary_kl_divergence(teacher / T, student / T).sum(-1)
