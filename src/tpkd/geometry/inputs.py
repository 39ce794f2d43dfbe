"""What enters the geometry: one check of metadata and labels, one choice of the dtype to compute in."""

import operator
from typing import SupportsIndex

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

TPKD_NEEDS_THREE_CLASSES = (
    "with two classes there is a single incorrect class, so its conditional distribution is the constant 1 and a "
    'teacher has no conditional knowledge to pass on: use kd_loss (objective="kd"), cross-entropy, or at least three '
    "classes"
)

_INTEGER_TYPES = (
    *(torch.int64, torch.int32, torch.int16, torch.int8),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
)
_INT64_MAX = 2**63 - 1


def computation_dtype(*tensors: Tensor) -> torch.dtype:
    """The dtype to compute in: the widest of the inputs, and never below float32."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return dtype


def can_read_values(tensor: Tensor) -> bool:
    """Whether looking at values is free: an accelerator would stall, what is compiled or traced would break.

    Example:
        >>> can_read_values(torch.zeros(2)), can_read_values(torch.zeros(2, device="meta"))
        (True, False)
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or not tensor.is_cpu:  # type: ignore
        return False
    # A mode traces or counts operations, or lets tensors hold no values; so does a subclass with a dispatch of its own.
    return not is_in_torch_dispatch_mode() and type(tensor).__torch_dispatch__ is Tensor.__torch_dispatch__


def check_logits(name: str, logits: Tensor, *, class_axis: int = -1, min_classes: int = 3) -> None:
    """Refuse logits that are not a floating tensor with enough classes."""
    if not isinstance(logits, Tensor):
        raise ValueError(f"{name}: expected a torch.Tensor of logits, got {type(logits).__name__}")
    if not logits.is_floating_point():
        raise ValueError(f"{name}: expected floating-point logits, got {logits.dtype}")
    if logits.ndim == 0:
        raise ValueError(f"{name}: expected at least one axis of classes, got a scalar")
    num_classes = logits.shape[class_axis]
    if num_classes < min_classes:
        reason = f"; {TPKD_NEEDS_THREE_CLASSES}" if min_classes == 3 else ""
        raise ValueError(f"{name}: expected at least {min_classes} classes, got {num_classes}{reason}")


def check_same_shape(
    reference: Tensor, logits: Tensor, name: str = "teacher_logits", reference_name: str = "student_logits"
) -> None:
    """Refuse a companion whose classes or positions are not the reference's."""
    if reference.shape != logits.shape:
        raise ValueError(
            f"{name}: expected the shape of {reference_name} {tuple(reference.shape)}, got {tuple(logits.shape)}"
        )


def class_indices(labels: Tensor | None) -> Tensor:
    """Labels of any integer type in int64, the only type in which they may be compared.

    In a narrow type a comparison wraps the other number around: in uint8, -100 is class 156. What int64 cannot hold
    becomes its largest number, which is neither a class nor an index to ignore.

    Raises:
        ValueError: the labels are not integers.

    Example:
        >>> class_indices(torch.tensor([156, 2], dtype=torch.uint8)) == -100
        tensor([False, False])
    """
    if not isinstance(labels, Tensor):
        raise ValueError(f"labels: expected a torch.Tensor of class indices, got {type(labels).__name__}")
    if labels.dtype == torch.int64:
        return labels
    if labels.is_floating_point() or labels.is_complex():
        raise ValueError(
            f"labels: expected integer class indices, got {labels.dtype} of shape {tuple(labels.shape)}; "
            "probabilities are not taken here: pass labels.argmax over the class axis"
        )
    if labels.dtype == torch.bool:
        raise ValueError(
            "labels: expected integer class indices, got torch.bool; pass labels.long() if 0/1 are classes"
        )
    if labels.dtype not in _INTEGER_TYPES:
        raise ValueError(f"labels: expected integer class indices, got {labels.dtype}")
    indices = labels.long()
    return torch.where(indices < 0, _INT64_MAX, indices) if labels.dtype == torch.uint64 else indices


def check_ignore_index(ignore_index: SupportsIndex) -> int:
    """Refuse what no label of 64 bits can be.

    Example:
        >>> check_ignore_index(-100)
        -100
    """
    if not isinstance(ignore_index, int):  # such as NumPy's integers
        try:
            ignore_index = operator.index(ignore_index)
        except TypeError:
            raise ValueError(f"ignore_index: expected an integer of 64 bits, got {ignore_index!r}") from None
    if not -(2**63) <= ignore_index < _INT64_MAX:
        raise ValueError(f"ignore_index: expected an integer of 64 bits, got {ignore_index}")
    return ignore_index


def check_labels(
    labels: Tensor | None, expected_shape: torch.Size, num_classes: int, *, ignore_index: int | None = None
) -> Tensor:
    """Refuse labels that are not class indices of the expected shape; return them in int64 otherwise.

    Example:
        >>> check_labels(torch.tensor([2, 0], dtype=torch.uint8), torch.Size([2]), 3)
        tensor([2, 0])
    """
    indices = class_indices(labels)
    assert labels is not None
    if labels.shape != expected_shape:
        raise ValueError(f"labels: expected shape {tuple(expected_shape)}, got {tuple(labels.shape)}")
    if can_read_values(labels):
        _check_label_range(labels, indices, num_classes, ignore_index)
    return indices


def _check_label_range(labels: Tensor, indices: Tensor, num_classes: int, ignore_index: int | None) -> None:
    outside = (indices < 0) | (indices >= num_classes)
    if ignore_index is not None:
        outside = outside & (indices != ignore_index)
    if outside.any():
        position = tuple(outside.nonzero()[0].tolist())
        ignored = "" if ignore_index is None else f" or ignore_index={ignore_index}"
        raise ValueError(
            f"labels: expected class indices from 0 to {num_classes - 1}{ignored}, "
            f"got {labels[position].item()} at position {position}"
        )


def check_positive(name: str, value: float) -> None:
    """Refuse a number that is not positive and finite."""
    if not 0 < value < float("inf"):
        raise ValueError(f"{name}: expected a positive finite number, got {value}")


def first_place(is_there: Bool[Tensor, "*batch"]) -> str:
    """The first true position in a batch, for a message.

    Example:
        >>> first_place(torch.tensor([False, True])), first_place(torch.tensor([[False, True]]))
        ('row 1', 'position (0, 1)')
    """
    index = is_there.nonzero()[0].tolist()
    return f"row {index[0]}" if len(index) == 1 else f"position {tuple(index)}"
