"""KL-Dist: imitation of the teacher alone."""

from jaxtyping import Float, Shaped
from torch import Tensor

from tpkd.objectives.base import PaperAccuracy
from tpkd.objectives.kd import imitation_rows
from tpkd.objectives.registry import register
from tpkd.objectives.row_objective import RowObjective


@register
class KLDist(RowObjective):
    """The teacher alone; labels, where a batch has them, only mask."""

    temperature: float = 1.0

    name = "kl-dist"
    title = "KL-Dist"
    summary = "full imitation of the teacher, without labels"
    takes_soft_labels = True
    source = "Roth et al. 2024; FantasticGains"
    teacher_average = "probabilities"
    needs = frozenset({"teacher_logits"})
    paper_accuracy = PaperAccuracy(vision=(82.26, 0.05), text=(93.38, 0.19))

    def row_losses(self, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
        """T^2 KL(t^T || p^T)."""
        return imitation_rows(student, teacher, self.temperature)


def kl_dist_loss(
    student_logits: Float[Tensor, "..."],
    teacher_logits: Float[Tensor, "..."],
    labels: Shaped[Tensor, "..."] | None = None,
    *,
    temperature: float = 1.0,
    sample_weights: Float[Tensor, "..."] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: float | Tensor | None = None,
) -> Float[Tensor, "..."]:
    """KL-Dist: full imitation and nothing else.

    Paper: appendix E.1, L = T^2 KL(t^T || p^T) with T = 1; the gradient is T (p^T - t^T). Labels only say which
    positions to ignore and may be left out.

    Shapes: logits `(K,)`, `(N, K)` or `(N, K, d1, ...)` with K >= 2, labels the same without K.

    Returns:
        A scalar, or for `"none"` one loss per position; see `tpkd_loss` for the last four arguments.

    Example:
        >>> import torch
        >>> kl_dist_loss(torch.tensor([[2.0, 0.5, -1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5, -1.0]]))
        tensor(0.4017)
    """
    return KLDist(temperature)(
        student_logits,
        teacher_logits,
        labels,
        ignore_index=ignore_index,
        reduction=reduction,
        num_items=num_items,
        sample_weights=sample_weights,
    )
