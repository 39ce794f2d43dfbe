"""The compiled protected loss (`_kernel.c`): which batches it takes, and how they are handed over."""

from types import ModuleType

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpkd.geometry.inputs import can_read_values

_kernel: ModuleType | None
try:
    from tpkd.objectives import _kernel
except ImportError:  # installed without a C compiler
    _kernel = None

_STUDENT_DTYPES = {torch.float32: 0, torch.bfloat16: 1}
_TEACHER_DTYPES = _STUDENT_DTYPES | {torch.float16: 2}  # in which teachers are cached
_SCRATCH_BYTES = 4_000_000
"""Memory of all threads together, unless one needs more: two rows in float32."""
_THREAD_NUMEL = 2**14
"""Logits for which it is worth to wake another thread."""


def kernel_takes(student: Float[Tensor, "rows K"], teacher: Float[Tensor, "rows K"]) -> bool:
    """Whether the kernel is there and takes such logits: plain tensors on a CPU, as people train with.

    Example:
        >>> kernel_takes(torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, 3))
        False
    """
    return (
        _kernel is not None
        and student.dtype in _STUDENT_DTYPES
        and teacher.dtype in _TEACHER_DTYPES
        and type(student) is type(teacher) is Tensor  # others may hold no memory to point at
        and can_read_values(student)
        and teacher.is_cpu
    )


def kernel_values_and_direction(
    student: Float[Tensor, "rows K"],
    teacher: Float[Tensor, "rows K"],
    labels: Int[Tensor, "rows"],
    valid: Bool[Tensor, "rows"] | None,
    beta: float,
    weight: float,
    wanted: bool,
    overwrite: bool,
) -> tuple[Float[Tensor, "rows"], Float[Tensor, "rows K"] | None, Float[Tensor, ""]]:
    """What `tpkd.objectives.tpkd_fast.values_and_direction` returns, for logits that `kernel_takes` allows.

    Example:
        >>> student, teacher = torch.tensor([[4.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]])
        >>> if kernel_takes(student, teacher):
        ...     kernel_values_and_direction(student, teacher, torch.tensor([0]), None, 0.5, 1.0, False, False)[0]
        tensor([0.2023])
    """
    assert _kernel is not None
    num_rows, num_classes = student.shape
    z, zt, y = _unit_stride(student), _unit_stride(teacher), labels.contiguous()
    valid = None if valid is None else valid.contiguous()
    direction = None
    if wanted:
        assert z is student or not overwrite  # no other strides than those of a layer's output
        direction = student if overwrite else torch.empty_like(student, memory_format=torch.contiguous_format)
    width = -(-num_classes // _kernel.LANES) * _kernel.LANES
    useful = min(num_rows, student.numel() // _THREAD_NUMEL, _SCRATCH_BYTES // (8 * width))
    threads = max(1, min(torch.get_num_threads(), useful))
    losses = torch.empty(num_rows, dtype=torch.float32, device="cpu")
    scratch = torch.empty(threads * 2 * width, dtype=torch.float32, device="cpu")
    total = _kernel.losses_and_directions(
        _handed_over(z),
        _handed_over(zt),
        (0, 0, 0) if direction is None else _handed_over(direction),
        y.data_ptr(),
        0 if valid is None else valid.data_ptr(),
        losses.data_ptr(),
        scratch.data_ptr(),
        num_rows,
        num_classes,
        beta,
        weight,
        threads,
    )
    return losses, direction, torch.scalar_tensor(total, dtype=torch.float32, device="cpu")


def _unit_stride(logits: Tensor) -> Tensor:
    logits = logits.resolve_neg()
    return logits if logits.stride(-1) == 1 else logits.contiguous()


def _handed_over(logits: Tensor) -> tuple[int, int, int]:
    return logits.data_ptr(), logits.stride(0) * logits.itemsize, _TEACHER_DTYPES[logits.dtype]
