"""The protected loss in C (`_cpu.c`): whether it can run, and how a batch is handed over."""

import importlib
from types import ModuleType

import torch
from torch import Tensor

from tpkd.geometry.correct import check_support, sum_tolerance
from tpkd.geometry.inputs import class_indices
from tpkd.geometry.top_k import TopK, check_top_k_range
from tpkd.objectives.kernels.batch import Batch, Outcome, unit_stride
from tpkd.objectives.reduction import soft_rows

_kernel: ModuleType | None
try:
    _kernel = importlib.import_module("tpkd.objectives.kernels._cpu")
except ImportError:  # installed without a C compiler, or a library that it links to is missing
    _kernel = None

_DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""The kernel's number of each."""
_SCRATCH_BYTES = 4_000_000
"""Memory of all threads together, unless one needs more: two to four rows in float32."""
_THREAD_NUMEL = 2**14
"""Minimum logits per extra thread."""


def has_kernel() -> bool:
    """Whether installing tpkd has built the kernel."""
    return _kernel is not None


def is_ready(student: Tensor) -> bool:
    """Whether there is a kernel, and the batch on a CPU."""
    return student.is_cpu and _kernel is not None


def values_and_direction(batch: Batch) -> Outcome:
    """See `tpkd.objectives.kernels.values_and_direction`.

    Soft labels need not be looked at before: the kernel finds rows that are wrong or ignored.
    """
    student, teacher, labels, valid, beta, weight, _, temperature, overwrite = batch
    assert _kernel is not None
    num_rows, num_classes = student.shape
    z, direction, soft = unit_stride(student), batch.direction_memory(), labels.is_floating_point()
    assert z is student or not overwrite  # callers pass a layer's output, which is contiguous
    if isinstance(teacher, TopK):
        zt, kept, places = None, _kept(teacher), teacher.k
    else:
        zt, kept, places = unit_stride(teacher), (None,) * 4, 0
    if soft and labels.dtype not in _DTYPES:
        labels = labels.float()
    labels = unit_stride(labels) if soft else labels.contiguous()
    valid = None if valid is None else valid.contiguous()
    thread_bytes = _kernel.scratch_bytes(num_classes, places, temperature != 1, soft)
    useful = min(num_rows, student.numel() // _THREAD_NUMEL, _SCRATCH_BYTES // thread_bytes)
    threads = max(1, min(torch.get_num_threads(), useful))
    losses = student.new_empty(num_rows, dtype=torch.float32)
    # Behind what the threads work in is a place for the kernel's own copy of the labels.
    scratch = student.new_empty(threads * thread_bytes + 8 * num_rows, dtype=torch.uint8)
    total, ignored, wrong = _kernel.losses_and_directions(
        *map(_rows, (z, zt, direction, labels if soft else None)),
        *map(_address, (*kept, None if soft else labels, valid, losses, scratch)),
        *(places, num_rows, num_classes, thread_bytes),
        *(beta, temperature, weight, sum_tolerance(batch.labels.dtype) if soft else 0.0),
        threads,
    )
    if wrong >= 0:
        _refuse(wrong, batch)
    found = ignored if soft and valid is None else 0
    return Outcome(losses, direction, torch.scalar_tensor(total, dtype=torch.float32, device="cpu"), found)


def _kept(top_k: TopK) -> tuple[Tensor | None, ...]:
    """Its tensors in the kernel's dtypes; a copy of the indices, because the kernel uses those that it checked."""
    indices = class_indices(top_k.indices).clone(memory_format=torch.contiguous_format)
    more = (top_k.label_log_probs, top_k.rest_log_probs)
    log_probs = top_k.log_probs.resolve_neg().float().contiguous()
    return log_probs, indices, *(None if one is None else one.resolve_neg().double().contiguous() for one in more)


def _rows(logits: Tensor | None) -> tuple[int, int, int]:
    if logits is None:
        return 0, 0, 0
    return logits.data_ptr(), logits.stride(0) * logits.itemsize, _DTYPES[logits.dtype]


def _address(values: Tensor | None) -> int:
    return 0 if values is None else values.data_ptr()


def _refuse(row: int, batch: Batch) -> None:
    """Say what is wrong with the first row at which the kernel stopped."""
    labels, num_classes = batch.labels, batch.student.shape[1]
    if labels.is_floating_point():
        check_support(soft_rows(labels, labels.shape, torch.float64)[0] > 0)
    elif not 0 <= labels[row] < num_classes:
        expected = f"class indices from 0 to {num_classes - 1} or ignore_index"
        raise ValueError(f"labels: expected {expected}, got {labels[row].item()} at position {row}")
    elif isinstance(batch.teacher, TopK):
        check_top_k_range(batch.teacher, num_classes)
    raise ValueError(f"labels: expected numbers that stay as they are while the loss is computed, in row {row}")
