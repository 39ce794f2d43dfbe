"""Shapes, masks and reductions of every loss, once: what `F.cross_entropy` takes comes in, rows go on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import TypeGuard

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from tpkd.geometry.correct import normalised_probabilities
from tpkd.geometry.inputs import (
    can_read_values,
    check_ignore_index,
    check_labels,
    check_logits,
    check_same_shape,
    computation_dtype,
)
from tpkd.objectives.weights import weight_rows

IGNORE_INDEX = -100
"""The label of a position to leave out, as everywhere in torch."""


@dataclass(frozen=True)
class Rows:
    """The positions of a batch as rows; an ignored one holds zeros and label 0, so that nothing of it can leak."""

    student: Float[Tensor, "rows K"]
    others: dict[str, Float[Tensor, "rows K"]]
    """Detached companions of the student: the teacher, a frozen initial student."""
    labels: Int[Tensor, "rows"] | Float[Tensor, "rows K"]
    """Classes, or probabilities that sum to one."""
    valid: Bool[Tensor, "rows"] | None
    """`None` where all rows are known to be valid. A row of weight zero is not."""
    position_shape: torch.Size
    """The shape of the labels, to which per-position losses return."""
    weights: Float[Tensor, "rows"] | None = None
    """What each row is multiplied by, zero where it is not valid; `None` where none were given."""


def as_rows(
    student_logits: Float[Tensor, "..."],
    others: dict[str, Float[Tensor, "..."]],
    labels: Shaped[Tensor, "..."] | None,
    *,
    ignore_index: int,
    min_classes: int = 2,
    labels_only_mask: bool = False,
    sample_weights: Float[Tensor, "..."] | None = None,
) -> Rows:
    """Check logits `(K,)`, `(N, K)` or `(N, K, d1, ...)` with labels of the same shape without `K`, and flatten them.

    Labels may be probabilities of the shape of the logits; of those, rows of zeros are ignored.

    Ignored positions are replaced before any arithmetic: their NaNs reach neither the value nor the gradient. Without
    any, rows may share memory with the logits.
    Where labels only mask they may be `None`: then every position is valid.
    """
    position_shape = check_positions(student_logits, others, min_classes=min_classes)
    num_classes = student_logits.shape[0 if student_logits.ndim == 1 else 1]
    valid: Tensor | None = None
    dtype = computation_dtype(student_logits, *others.values())
    if isinstance(labels, Tensor) and labels.is_floating_point():
        check_ignore_index(ignore_index)
        classes, valid = soft_rows(labels, student_logits.shape, dtype)
    elif labels is None and labels_only_mask:
        check_ignore_index(ignore_index)
        classes = torch.zeros(position_shape.numel(), dtype=torch.long, device=student_logits.device)
    else:
        classes, valid = flat_labels(labels, position_shape, num_classes, ignore_index)
    weights: Tensor | None = None
    if sample_weights is not None:
        weights, valid = weight_rows(sample_weights, position_shape, dtype, valid)

    def rows(logits: Tensor) -> Tensor:
        return without_ignored(logit_rows(logits.to(dtype)), valid)

    companions = {name: rows(logits.detach()) for name, logits in others.items()}
    return Rows(rows(student_logits), companions, classes, valid, position_shape, weights)


def soft_rows(
    labels: Float[Tensor, "..."], logits_shape: torch.Size, dtype: torch.dtype
) -> tuple[Float[Tensor, "rows K"], Bool[Tensor, "rows"] | None]:
    """Check probabilities as labels and flatten them; an ignored row, of zeros, becomes class 0.

    Example:
        >>> soft_rows(torch.tensor([[0.5, 0.5], [0.0, 0.0]]), torch.Size([2, 2]), torch.float32)
        (tensor([[0.5000, 0.5000],
                [1.0000, 0.0000]]), tensor([ True, False]))
    """
    if labels.shape != logits_shape:
        expected = f"the shape of the logits {tuple(logits_shape)} for probabilities"
        raise ValueError(f"labels: expected {expected}, got {labels.dtype} of shape {tuple(labels.shape)}")
    flat = logit_rows(labels)
    shares, valid = normalised_probabilities(flat, flat.shape, dtype, zero_rows=True)
    if can_read_values(valid) and valid.all():
        return shares, None
    first = torch.arange(shares.shape[-1], device=shares.device) == 0
    return torch.where(valid.unsqueeze(-1), shares, first.to(shares.dtype)), valid


def logit_rows(logits: Float[Tensor, "..."]) -> Float[Tensor, "rows K"]:
    """The classes of each position as a row; a matrix is returned as it is.

    Example:
        >>> logit_rows(torch.zeros(2, 3, 4)).shape
        torch.Size([8, 3])
    """
    if logits.ndim == 2:
        return logits
    return logits.unsqueeze(0) if logits.ndim == 1 else logits.movedim(1, -1).reshape(-1, logits.shape[1])


def without_ignored(values: Float[Tensor, "rows ..."], valid: Bool[Tensor, "rows"] | None) -> Float[Tensor, "rows ..."]:
    """The values with zeros in ignored rows, from which no gradient flows back.

    Example:
        >>> without_ignored(torch.ones(2, 3), torch.tensor([True, False]))
        tensor([[1., 1., 1.],
                [0., 0., 0.]])
    """
    if valid is None:
        return values
    return torch.where(valid.unsqueeze(-1) if values.ndim == 2 else valid, values, 0.0)


def check_positions(
    student_logits: Float[Tensor, "..."], others: Mapping[str, Float[Tensor, "..."]], *, min_classes: int
) -> torch.Size:
    """Check the student and its companions against each other; return the shape of the positions."""
    class_axis = 0 if getattr(student_logits, "ndim", 1) == 1 else 1
    check_logits("student_logits", student_logits, class_axis=class_axis, min_classes=min_classes)
    for name, logits in others.items():
        check_logits(name, logits, min_classes=0)  # the shape check compares the number
        check_same_shape(student_logits, logits, name)
    return student_logits.shape[:class_axis] + student_logits.shape[class_axis + 1 :]


def flat_labels(
    labels: Int[Tensor, "..."] | None, position_shape: torch.Size, num_classes: int, ignore_index: int
) -> tuple[Int[Tensor, "rows"], Bool[Tensor, "rows"] | None]:
    """Check labels and flatten them, in int64; the mask of valid rows is `None` where all are known to be valid.

    Example:
        >>> flat_labels(torch.tensor([2, -100]), torch.Size([2]), 3, -100)
        (tensor([2, 0]), tensor([ True, False]))
    """
    ignore_index = check_ignore_index(ignore_index)
    if _may_all_be_classes(labels, position_shape, num_classes, ignore_index):
        least, greatest = labels.aminmax()
        if least.item() >= 0 and greatest.item() < num_classes:
            return labels if labels.ndim == 1 else labels.reshape(-1), None
    flat = check_labels(labels, position_shape, num_classes, ignore_index=ignore_index).reshape(-1)
    valid = flat != ignore_index
    return torch.where(valid, flat, 0), valid


def _may_all_be_classes(
    labels: object, position_shape: torch.Size, num_classes: int, ignore_index: int
) -> TypeGuard[Tensor]:
    """Whether looking at the values is free and all there is left to check."""
    return (
        isinstance(labels, Tensor)
        and labels.dtype == torch.long
        and labels.shape == position_shape
        and labels.numel() > 0
        and not 0 <= ignore_index < num_classes
        and can_read_values(labels)
    )


def reduce_rows(
    losses: Float[Tensor, "rows"], rows: Rows, *, reduction: str, num_items: float | Tensor | None
) -> Float[Tensor, "*positions"]:
    """Zero what is ignored, weigh the rest and reduce over valid positions.

    `"mean"` divides by `num_items`, the count of valid positions over the whole effective batch, or by this call's own
    count; with weights, both are the sum of the weights of valid positions. With nothing valid the result is a zero
    that keeps the graph.
    """
    check_reduction(reduction, num_items, weighted=rows.weights is not None)
    losses = without_ignored(losses, rows.valid)
    if rows.weights is not None:
        losses = losses * rows.weights
    if reduction == "none":
        return losses.reshape(rows.position_shape)
    total = losses.sum()
    if reduction == "sum":
        return total
    return total / denominator(losses.shape[0], rows.valid, num_items, rows.weights)


def denominator(
    num_rows: int,
    valid: Bool[Tensor, "rows"] | None,
    num_items: float | Tensor | None,
    weights: Float[Tensor, "rows"] | None = None,
) -> float | Tensor:
    """What a mean divides by: `num_items` or the count of valid rows, at least 1; a plain number if it may be read.

    With weights, which are zero where a row is not valid, it is `num_items` or their sum, which may be below 1.

    Example:
        >>> denominator(2, torch.tensor([True, False]), None), denominator(2, None, None)
        (1, 2)
        >>> denominator(2, None, None, torch.tensor([0.5, 0.25]))
        0.75
    """
    if weights is not None:
        total = weights.sum() if num_items is None else num_items
        if isinstance(total, Tensor) and not can_read_values(total):
            return torch.where(total == 0, 1.0, total).reshape(())
        return float(total) or 1.0  # with nothing valid the mean is a zero
    count = num_items if num_items is not None else num_rows if valid is None else valid.sum()
    if isinstance(count, Tensor) and not can_read_values(count):
        return count.reshape(()).clamp(min=1)
    return max(int(count), 1)


def check_reduction(reduction: str, num_items: float | Tensor | None, *, weighted: bool = False) -> None:
    """Refuse an unknown reduction, and a count where no mean is taken; `weighted` counts are sums of weights."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction: expected 'mean', 'sum' or 'none', got {reduction!r}")
    if num_items is None:
        return
    if reduction != "mean":
        raise ValueError(f"num_items: expected None with reduction={reduction!r}; it is the denominator of 'mean' only")
    expected = "the sum of the weights of valid positions" if weighted else "a count of valid positions"
    if not isinstance(num_items, Real | Tensor):
        raise ValueError(f"num_items: expected {expected}, got {type(num_items).__name__}")
    if isinstance(num_items, Tensor):
        if num_items.numel() != 1:
            raise ValueError(f"num_items: expected one count, got a tensor of shape {tuple(num_items.shape)}")
        if not can_read_values(num_items):
            return
    if not (0 <= num_items < math.inf and (weighted or num_items == int(num_items))):
        raise ValueError(f"num_items: expected {expected}, got {num_items}")


def check_weight(name: str, weight: float) -> None:
    """Refuse a weight that is negative or not finite."""
    if not 0 <= weight < float("inf"):
        raise ValueError(f"{name}: expected a nonnegative finite weight, got {weight}")
