"""KD: cross-entropy plus imitation of the whole softened teacher distribution."""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from tpkd.geometry.divergences import kl_divergence
from tpkd.geometry.top_k import TopK, what_is_known
from tpkd.objectives.base import PaperAccuracy
from tpkd.objectives.cross_entropy import label_rows
from tpkd.objectives.registry import register
from tpkd.objectives.row_objective import RowObjective


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


def merged_imitation_rows(
    student: Float[Tensor, "rows K"], teacher: TopK, labels: Int[Tensor, "rows"]
) -> Float[Tensor, "rows"]:
    """KL(t || p) of each row where all classes that a truncated teacher did not keep count as one.

    EXTENSIONS 2: it is KL(t^ || p) of the teacher that the student completes, and its gradient is p - t^.

    Example:
        >>> import torch
        >>> top_k = TopK(torch.tensor([[0.5]]).log(), torch.tensor([[0]]))
        >>> merged_imitation_rows(torch.zeros(1, 4), top_k, torch.tensor([0]))
        tensor([0.1438])
    """
    known = what_is_known(teacher, labels, student.shape[-1], student.dtype)
    log_target = torch.cat([known.log_probs, known.log_rest.unsqueeze(-1)], dim=-1).log_softmax(-1)
    log_probs = student.log_softmax(-1)
    # Where nothing was cut its place holds the log of one: a finite number, which the target rules out.
    rest = known.rest | ~known.rest.any(-1, keepdim=True)
    log_rest = torch.where(rest, log_probs, -torch.inf).logsumexp(-1, keepdim=True)
    log_given = torch.where(known.rest, 0.0, log_probs)  # of the rest only the total counts
    return kl_divergence(log_target, torch.cat([log_given, log_rest], dim=-1))


@register
class KD(RowObjective):
    """Labels and the whole softened teacher."""

    temperature: float = 4.0
    ce_weight: float = 1.0
    kd_weight: float = 1.0

    name = "kd"
    title = "KD"
    summary = "cross-entropy plus imitation of the softened teacher"
    takes_soft_labels = True
    source = "Hinton et al. 2015; mdistiller"
    teacher_average = "probabilities"
    reconstruction = "the label weight: the paper states a distillation coefficient of 1, read as CE + KD"
    paper_accuracy = PaperAccuracy(vision=(87.58, 0.07), text=(93.46, 0.34))

    top_k_condition = "set temperature=1, where the classes that were cut count as one"

    @property
    def takes_top_k(self) -> bool:
        """At temperature 1 alone: softened, the classes that were cut have no known total."""
        return self.temperature == 1

    def row_losses(self, student: Tensor, teacher: Tensor | TopK, labels: Tensor) -> Tensor:
        """ce_weight L_CE + kd_weight T^2 KL(t^T || p^T)."""
        if isinstance(teacher, TopK):
            imitation = merged_imitation_rows(student, teacher, labels)
        else:
            imitation = imitation_rows(student, teacher, self.temperature)
        return self.ce_weight * label_rows(student, labels) + self.kd_weight * imitation


def kd_loss(
    student_logits: Float[Tensor, "..."],
    teacher_logits: Float[Tensor, "..."],
    labels: Shaped[Tensor, "..."],
    *,
    temperature: float = 4.0,
    ce_weight: float = 1.0,
    kd_weight: float = 1.0,
    sample_weights: Float[Tensor, "..."] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: float | Tensor | None = None,
) -> Float[Tensor, "..."]:
    """Knowledge distillation: match the teacher's softened distribution while fitting the labels.

    Paper: appendix E.1, L = ce_weight L_CE + kd_weight T^2 KL(t^T || p^T) with T = 4. The gradient of the second term
    is T (p^T - t^T); the label term sees unscaled logits.

    Shapes: logits `(K,)`, `(N, K)` or `(N, K, d1, ...)` with K >= 2, labels the same without K.

    Returns:
        A scalar, or for `"none"` a tensor of the shape of `labels`; see `tpkd_loss` for the last four arguments.

    Example:
        >>> import torch
        >>> student, teacher = torch.tensor([[2.0, 0.5, -1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5, -1.0]])
        >>> kd_loss(student, teacher, torch.tensor([0]))
        tensor(0.8531)
    """
    return KD(temperature, ce_weight, kd_weight)(
        student_logits,
        teacher_logits,
        labels,
        ignore_index=ignore_index,
        reduction=reduction,
        num_items=num_items,
        sample_weights=sample_weights,
    )
