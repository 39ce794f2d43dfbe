"""Weights of samples and of classes: how much each position counts in a loss."""

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from tpkd.geometry.inputs import can_read_values, class_indices

_IGNORE_INDEX = -100


def weight_rows(
    sample_weights: Float[Tensor, "..."],
    position_shape: torch.Size,
    dtype: torch.dtype,
    valid: Bool[Tensor, "rows"] | None,
) -> tuple[Float[Tensor, "rows"], Bool[Tensor, "rows"] | None]:
    """Check weights and flatten them; return them with the rows that count: valid ones of a weight above zero.

    The weight of every other row is zero. Rows are `None` where all are known to count.

    Example:
        >>> weights, valid = torch.tensor([2.0, 0.0, 3.0]), torch.tensor([True, True, False])
        >>> weight_rows(weights, torch.Size([3]), torch.float32, valid)
        (tensor([2., 0., 0.]), tensor([ True, False, False]))
    """
    if not isinstance(sample_weights, Tensor) or sample_weights.is_complex():
        found = sample_weights.dtype if isinstance(sample_weights, Tensor) else type(sample_weights).__name__
        raise ValueError(f"sample_weights: expected a torch.Tensor of real numbers, got {found}")
    if sample_weights.shape != position_shape:
        expected = f"the shape of the positions {tuple(position_shape)}"
        raise ValueError(f"sample_weights: expected {expected}, got {tuple(sample_weights.shape)}")
    weights = sample_weights.detach().to(dtype).reshape(-1)
    readable = can_read_values(weights)
    if readable:
        check_weights("sample_weights", weights)
    counts = weights != 0 if valid is None else valid & (weights != 0)
    if readable and counts.all():
        return weights, None
    return torch.where(counts, weights, 0.0), counts


def check_weights(name: str, weights: Float[Tensor, "rows"]) -> None:
    """Refuse weights that are negative or not finite.

    Example:
        >>> check_weights("sample_weights", torch.tensor([1.0, -2.0]))
        Traceback (most recent call last):
            ...
        ValueError: sample_weights: expected nonnegative finite numbers, got -2.0 at position 1
    """
    wrong = ~((weights >= 0) & (weights < torch.inf))
    if wrong.any():
        position = int(wrong.nonzero()[0])
        found = f"{weights[position].item()} at position {position}"
        raise ValueError(f"{name}: expected nonnegative finite numbers, got {found}")


def class_sample_weights(
    labels: Shaped[Tensor, "..."], class_weights: Float[Tensor, "K"], *, ignore_index: int = _IGNORE_INDEX
) -> Float[Tensor, "..."]:
    """The weight of each sample from those of its classes, to be passed to a loss as `sample_weights`.

    A class c has weight w_c, a soft label s the weight sum_c s_c w_c, and a label that is ignored the weight 0.
    For hard labels cross-entropy then is `F.cross_entropy(..., weight=class_weights)`. For soft ones torch weighs each
    term s_c log p_c by w_c instead and divides by the number of samples; that is not a weight of samples, and so has no
    counterpart for a direction.

    Shapes: classes `(N, d1, ...)`, or probabilities `(K,)`, `(N, K)` or `(N, K, d1, ...)`; returns `(N, d1, ...)`.

    Example:
        >>> class_sample_weights(torch.tensor([2, 0, -100]), torch.tensor([1.0, 1.0, 4.0]))
        tensor([4., 1., 0.])
        >>> class_sample_weights(torch.tensor([[0.5, 0.0, 0.5]]), torch.tensor([1.0, 1.0, 4.0]))
        tensor([2.5000])
    """
    if not isinstance(class_weights, Tensor) or class_weights.ndim != 1 or not class_weights.is_floating_point():
        found = tuple(class_weights.shape) if isinstance(class_weights, Tensor) else type(class_weights).__name__
        raise ValueError(f"class_weights: expected a floating-point tensor of shape (K,), got {found}")
    if can_read_values(class_weights):
        check_weights("class_weights", class_weights)
    if isinstance(labels, Tensor) and labels.is_floating_point():
        last = labels if labels.ndim == 1 else labels.movedim(1, -1)
        if labels.ndim == 0 or last.shape[-1] != len(class_weights):
            expected = f"probabilities of the {len(class_weights)} classes of class_weights"
            raise ValueError(f"labels: expected {expected}, got shape {tuple(labels.shape)}")
        return (last * class_weights.to(last.dtype)).sum(-1)
    indices = class_indices(labels)
    ignored = indices == ignore_index
    known = torch.where(ignored, 0, indices)
    if can_read_values(known) and known.numel() and not 0 <= int(known.min()) <= int(known.max()) < len(class_weights):
        expected = f"classes from 0 to {len(class_weights) - 1}, as class_weights has them, or {ignore_index}"
        raise ValueError(f"labels: expected {expected}, got {int(known.min())} to {int(known.max())}")
    return torch.where(ignored, 0.0, class_weights[known])
