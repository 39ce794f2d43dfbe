"""The compiled protected loss (`_kernel.c`): which batches it takes, and how they are handed over."""

from types import ModuleType

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpkd.geometry.inputs import can_read_values

_kernel: ModuleType | None
try:
    from tpkd.objectives import _kernel
except ImportError:  # installed without a C compiler, or without what it links to
    _kernel = None

_STUDENT_DTYPES = {torch.float32: 0, torch.bfloat16: 1}
_TEACHER_DTYPES = _STUDENT_DTYPES | {torch.float16: 2}  # in which teachers are cached
_SCRATCH_BYTES = 4_000_000
"""Memory of all threads together, unless one needs more: two rows in float32."""
_FUSED_NUMEL = 2**15
"""Logits up to which a compiler's own code takes less time than it takes to leave that code for the kernel."""
_THREAD_NUMEL = 2**14
"""Logits for which it is worth to wake another thread."""


def has_kernel() -> bool:
    """Whether installing tpkd has built the kernel.

    Example:
        >>> has_kernel() in (True, False)
        True
    """
    return _kernel is not None


def kernel_takes(student: Float[Tensor, "..."], teacher: Float[Tensor, "..."], labels: Int[Tensor, "..."]) -> bool:
    """Whether the kernel is there and takes such a batch: plain tensors on a CPU, as people train with.

    Example:
        >>> kernel_takes(torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, 3), torch.tensor([0, 1]))
        False
    """
    if torch.compiler.is_exporting():  # what is exported runs where there is no tpkd
        return False
    if torch.compiler.is_compiling() and student.numel() <= _FUSED_NUMEL:
        return False
    return (
        has_kernel()
        and student.dtype in _STUDENT_DTYPES
        and teacher.dtype in _TEACHER_DTYPES
        and all(_is_memory(tensor) for tensor in (student, teacher, labels))
    )


def _is_memory(tensor: Tensor) -> bool:
    """Whether there are numbers at its address: subclasses may hold them elsewhere, and some zeros are nowhere."""
    if type(tensor) is not Tensor:
        return False
    if torch.compiler.is_compiling():
        return tensor.is_cpu  # when the graph runs
    return can_read_values(tensor) and not tensor._is_zerotensor()


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
    """What `tpkd.objectives.tpkd_fast.values_and_direction` returns, for a batch that `kernel_takes`.

    Example:
        >>> batch = torch.tensor([[4.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]]), torch.tensor([0])
        >>> kernel_values_and_direction(*batch, None, 0.5, 1.0, False, False)[0] if kernel_takes(*batch) else None
        tensor([0.2023])
    """
    if torch.compiler.is_compiling():
        losses, direction = torch.ops.tpkd.losses_and_directions(student, teacher, labels, valid, beta, weight, wanted)
        return losses, direction if wanted else None, losses.sum() * weight
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


def _operator(
    student: Tensor, teacher: Tensor, labels: Tensor, valid: Tensor | None, beta: float, weight: float, wanted: bool
) -> tuple[Tensor, Tensor]:
    """The kernel as one operator, which a compiled graph calls without looking inside. No direction is empty."""
    losses, direction, _ = kernel_values_and_direction(student, teacher, labels, valid, beta, weight, wanted, False)
    return losses, student.new_empty(0) if direction is None else direction


def _shapes(
    student: Tensor, teacher: Tensor, labels: Tensor, valid: Tensor | None, beta: float, weight: float, wanted: bool
) -> tuple[Tensor, Tensor]:
    # Not len(), which would bind the graph to one batch size.
    losses = student.new_empty(student.shape[0], dtype=torch.float32)
    return losses, student.new_empty(student.shape if wanted else 0)


if not hasattr(torch.ops.tpkd, "losses_and_directions"):  # operators outlive a module that is loaded again
    # Not custom_op, which checks every call for what ours does not do, and takes as long for it as for a small batch.
    torch.library.define(
        "tpkd::losses_and_directions",
        "(Tensor student, Tensor teacher, Tensor labels, Tensor? valid, float beta, float weight, bool wanted)"
        " -> (Tensor, Tensor)",
    )
    torch.library.impl("tpkd::losses_and_directions", "CPU", _operator)
    torch.library.register_fake("tpkd::losses_and_directions", _shapes)
