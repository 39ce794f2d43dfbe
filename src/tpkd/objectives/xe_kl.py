"""XE-KL: one mixture of imitation and label learning."""

from jaxtyping import Float, Shaped
from torch import Tensor

from tpkd.objectives.base import PaperAccuracy
from tpkd.objectives.cross_entropy import label_rows
from tpkd.objectives.kd import imitation_rows
from tpkd.objectives.registry import register
from tpkd.objectives.row_objective import RowObjective


@register
class XEKL(RowObjective):
    """A mixture of imitation and labels."""

    mix: float = 0.5
    temperature: float = 1.0
    label_term: str = "cross-entropy"

    name = "xe-kl"
    title = "XE-KL"
    summary = "one mixture of imitation and cross-entropy"
    takes_soft_labels = True
    source = "Roth et al. 2024; FantasticGains"
    teacher_average = "probabilities"
    reconstruction = (
        "the mix is not stated, 0.5 as released; the release's label term applies softmax twice "
        "(label_term='double-softmax'), the intended one is the default"
    )
    paper_accuracy = PaperAccuracy(vision=(84.17, 0.05), text=(93.41, 0.22))

    def check(self) -> None:
        """The mixture is a share, and the label term one of two."""
        if not 0 <= self.mix <= 1:
            raise ValueError(f"mix: expected the weight of imitation, from 0 to 1, got {self.mix}")
        if self.label_term not in ("cross-entropy", "double-softmax"):
            raise ValueError(f"label_term: expected 'cross-entropy' or 'double-softmax', got {self.label_term!r}")

    def row_losses(self, student: Tensor, teacher: Tensor, labels: Tensor) -> Tensor:
        """mix T^2 KL(t^T || p^T) + (1 - mix) L_CE."""
        imitation = imitation_rows(student, teacher, self.temperature)
        scores = student if self.label_term == "cross-entropy" else student.softmax(-1)
        return self.mix * imitation + (1 - self.mix) * label_rows(scores, labels)


def xe_kl_loss(
    student_logits: Float[Tensor, "..."],
    teacher_logits: Float[Tensor, "..."],
    labels: Shaped[Tensor, "..."],
    *,
    mix: float = 0.5,
    temperature: float = 1.0,
    label_term: str = "cross-entropy",
    sample_weights: Float[Tensor, "..."] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: float | Tensor | None = None,
) -> Float[Tensor, "..."]:
    """XE-KL: one mixture of imitation and label learning.

    Paper: appendix E.1, L = mix T^2 KL(t^T || p^T) + (1 - mix) L_CE with T = 1; there the gradient is
    p - mix t - (1 - mix) e_y. `label_term="double-softmax"` is the label term as the authors' code ran it: it feeds
    probabilities to a loss that takes logits, -log softmax(p)_y, and so hardly moves an example with a small p_y.

    Shapes: logits `(K,)`, `(N, K)` or `(N, K, d1, ...)` with K >= 2, labels the same without K.

    Returns:
        A scalar, or for `"none"` a tensor of the shape of `labels`; see `tpkd_loss` for the last four arguments.

    Example:
        >>> import torch
        >>> student, teacher = torch.tensor([[2.0, 0.5, -1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5, -1.0]])
        >>> xe_kl_loss(student, teacher, torch.tensor([0]))
        tensor(0.3720)
    """
    return XEKL(mix, temperature, label_term)(
        student_logits,
        teacher_logits,
        labels,
        ignore_index=ignore_index,
        reduction=reduction,
        num_items=num_items,
        sample_weights=sample_weights,
    )
