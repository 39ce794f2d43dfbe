"""Monitoring a batch during training: how far the teacher is blocked on it, and what protection keeps."""

from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from tpkd.geometry.inputs import check_ignore_index, class_indices
from tpkd.geometry.top_k import TopK
from tpkd.theory.diagnosis import diagnose

_FIELDS = ("blocked", "confidence", "label_loss", "conditional_loss", "transfer_cost", "compensation", "retention")
OF_THE_STEP = ("compensation", "retention")
"""Which of them describe the protected step; all others compare the two predictions."""
MIN_CLASSES = 3
"""With two classes there is no relation among incorrect ones."""


def observe(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"] | TopK,
    labels: Shaped[Tensor, "..."],
    *,
    ignore_index: int = -100,
    temperature: float = 1.0,
) -> dict[str, Float[Tensor, ""]]:
    """Means over the valid rows of a batch, from logits the step has anyway; one sort of N x K numbers.

    One call per step, in any training loop; it leaves no graph. Of a truncated teacher (EXTENSIONS 2) the means are
    those of `Diagnosis.summary`: `blocked_share` an upper bound, `conditional_loss` and `transfer_cost` lower bounds,
    over the rows whose label's log-probability is known. Without such a row they are 1, 0 and 0, which always hold.

    Args:
        student_logits: raw outputs of the student, with any number of axes before the classes.
        teacher_logits: of the same shape, or a `tpkd.geometry.TopK`.
        labels: integer classes, or probabilities of the shape of the logits, where rows of zeros are left out.
        ignore_index: the label of a row to leave out.
        temperature: that of the conditional direction; `compensation` and `retention` depend on it.

    Returns:
        The means of some fields of a diagnosis, `blocked` as `blocked_share`; zeros where no row is valid.

    Example:
        >>> import torch
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> seen = observe(student, teacher, torch.tensor([0]))
        >>> seen["blocked_share"], seen["transfer_cost"]
        (tensor(1.), tensor(0.6650))
    """
    values = observed_values(student_logits, teacher_logits, labels, ignore_index=ignore_index, temperature=temperature)
    nothing = dict.fromkeys(values, student_logits.new_zeros(()))
    if any(value.numel() for value in values.values()):
        # Over no row a bound is the one that always holds: nothing costs less than 0, and no more than all are blocked.
        nothing["blocked_share"] = nothing["blocked_share"] + 1
    return {name: value.mean() if value.numel() else nothing[name] for name, value in values.items()}


def observed_values(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"] | TopK,
    labels: Shaped[Tensor, "..."],
    *,
    ignore_index: int = -100,
    temperature: float = 1.0,
) -> dict[str, Float[Tensor, "rows"]]:
    """What `observe` takes the means of: one value per row that enters the mean, so that many batches add up exactly.

    Bounds from a truncated teacher have fewer rows than other fields where it does not give the label's
    log-probability.

    Example:
        >>> import torch
        >>> student, teacher = torch.zeros(3, 4), torch.tensor([0.0, 1.0, 2.0, 3.0]).expand(3, 4)
        >>> observed_values(student, teacher, torch.tensor([0, -100, 3]))["label_loss"]
        tensor([1.3863, 1.3863])
    """
    labels, valid = _valid_rows(student_logits, labels, ignore_index)
    if not valid.any():
        return dict.fromkeys(("blocked_share", *_FIELDS[1:]), student_logits.new_zeros(0))
    teacher = teacher_logits if isinstance(teacher_logits, TopK) else teacher_logits.detach()
    state = diagnose(student_logits.detach()[valid], teacher[valid], labels[valid], temperature=temperature)
    values = {name: getattr(state, name).float() for name in _FIELDS}
    if state.label_known is not None:
        bounded = [name for name in _FIELDS if state.bounds[name] in ("lower", "upper")]
        values |= {name: values[name][state.label_known] for name in bounded}
    return {"blocked_share": values.pop("blocked"), **values}


def _valid_rows(student_logits: Tensor, labels: Tensor, ignore_index: int) -> tuple[Tensor, Bool[Tensor, "*batch"]]:
    ignored = check_ignore_index(ignore_index)
    if isinstance(labels, Tensor) and labels.is_floating_point() and labels.shape == student_logits.shape:
        return labels, (labels != 0).any(-1)
    classes = class_indices(labels)
    return classes, classes != ignored
