"""Losses from a teacher that kept only its largest log-probabilities: nothing as wide as the classes is held of it."""

from jaxtyping import Float, Int
from torch import Tensor

from tpkd.geometry.top_k import TopK
from tpkd.objectives.kd import KD
from tpkd.objectives.tpkd import tpkd_loss


def top_k_tpkd_loss(
    student_logits: Float[Tensor, "*positions K"],
    top_log_probs: Float[Tensor, "*positions k"],
    top_indices: Int[Tensor, "*positions k"],
    labels: Int[Tensor, "*positions"],
    *,
    label_log_probs: Float[Tensor, "*positions"] | None = None,
    rest_log_probs: Float[Tensor, "*positions"] | None = None,
    beta: float = 0.5,
    temperature: float = 1.0,
    sample_weights: Float[Tensor, "..."] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: float | Tensor | None = None,
) -> Float[Tensor, "..."]:
    """`tpkd_loss` of a truncated teacher: no margin against any class, kept or not, is below that of the label step.

    EXTENSIONS 2. Inside the rest R, of which only the total is known, the student keeps its own proportions: the loss
    is that of the teacher `complete_top_k` returns, and at temperature 1 its conditional part is the KL of the merged
    distributions on the kept classes and R. Where the label's log-probability is not known, it learns the proportions
    inside the kept classes alone. Classes come last, as tokens have them.

    Args:
        student_logits: `(*positions, K)` with K >= 3.
        top_log_probs: `(*positions, k)`; -inf is a known zero. No gradient flows to it.
        top_indices: `(*positions, k)`, the classes in any order, each at most once; -1 marks an empty place.
        labels: integer classes `(*positions)`.
        label_log_probs: the teacher's for the label, which win over a label among the top k; nan where not known.
        rest_log_probs: the log of the total of all classes not given; left out, one minus what is given.
        beta: see `tpkd_loss`, as `ignore_index`, `reduction`, `num_items` and `sample_weights`.
        temperature: other than 1 the completed teacher is softened; then no descent of the value is promised.

    Returns:
        What `tpkd_loss` returns.

    Example:
        >>> import torch
        >>> student, labels = torch.tensor([[2.0, 0.5, -1.0, 0.0]], requires_grad=True), torch.tensor([0])
        >>> top = torch.tensor([[1.0, 0.0, 0.5, -1.0]]).log_softmax(-1).topk(2)
        >>> loss = top_k_tpkd_loss(student, top.values, top.indices, labels)
        >>> loss.backward()
        >>> loss.detach(), student.grad
        (tensor(0.6024), tensor([[-0.3960,  0.2906, -0.0708,  0.1763]]))
    """
    return tpkd_loss(
        _classes_second(student_logits),
        TopK(top_log_probs, top_indices, label_log_probs, rest_log_probs),
        labels,
        beta=beta,
        temperature=temperature,
        ignore_index=ignore_index,
        reduction=reduction,
        num_items=num_items,
        sample_weights=sample_weights,
    )


def top_k_kd_loss(
    student_logits: Float[Tensor, "*positions K"],
    top_log_probs: Float[Tensor, "*positions k"],
    top_indices: Int[Tensor, "*positions k"],
    labels: Int[Tensor, "*positions"],
    *,
    label_log_probs: Float[Tensor, "*positions"] | None = None,
    rest_log_probs: Float[Tensor, "*positions"] | None = None,
    ce_weight: float = 1.0,
    kd_weight: float = 1.0,
    sample_weights: Float[Tensor, "..."] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: float | Tensor | None = None,
) -> Float[Tensor, "..."]:
    """Ordinary distillation from a truncated teacher, with all classes that were cut taken as one: the comparison.

    EXTENSIONS 2: ce_weight L_CE + kd_weight KL(t || p) of the merged distributions, at temperature 1; the gradient of
    the second term is p minus the completed teacher. A label whose log-probability is not known is one of those cut.

    Shapes: as `top_k_tpkd_loss`.

    Example:
        >>> import torch
        >>> student, labels = torch.tensor([[2.0, 0.5, -1.0, 0.0]]), torch.tensor([0])
        >>> top = torch.tensor([[1.0, 0.0, 0.5, -1.0]]).log_softmax(-1).topk(2)
        >>> top_k_kd_loss(student, top.values, top.indices, labels)
        tensor(0.7378)
    """
    return KD(temperature=1.0, ce_weight=ce_weight, kd_weight=kd_weight)(
        _classes_second(student_logits),
        TopK(top_log_probs, top_indices, label_log_probs, rest_log_probs),
        labels,
        ignore_index=ignore_index,
        reduction=reduction,
        num_items=num_items,
        sample_weights=sample_weights,
    )


def _classes_second(logits: Float[Tensor, "*positions K"]) -> Float[Tensor, "..."]:
    """Tokens have the classes last, and the other losses where cross-entropy has them."""
    return logits.movedim(-1, 1) if isinstance(logits, Tensor) and logits.ndim > 1 else logits
