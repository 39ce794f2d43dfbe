"""The protected loss on NVIDIA and AMD GPUs (`gpu_rows.py`): whether it can run, its block sizes, and its launches.

Sums are taken in an order that depends on the sizes. So the first choice for a GPU, a number of classes and dtypes
stands for as long as the process lives; and there is no choice, but the first of `SIZES`, where runs must agree bit by
bit (`torch.use_deterministic_algorithms`, or `TPKD_AUTOTUNE=0` in the environment).
"""

import functools
import importlib
import os
from collections.abc import Callable
from contextlib import nullcontext, suppress
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from tpkd.objectives.kernels.batch import Batch, Outcome, unit_stride

OLDEST_TRITON = (3, 6)
"""That of torch 2.10, the oldest torch that tpkd takes."""
LONGEST_WHOLE_ROW = 2**14
"""Classes of a row that fit into the registers of one program."""
HELD = 2**13
"""Numbers below the roots of its parts that are kept of a long row."""
_SCRATCH_BYTES = 16 * 2**20
"""What is kept of all long rows that are worked on at a time."""
_TIMED_ROWS = 1024


class Sizes(NamedTuple):
    """How rows are dealt out."""

    per_thread: int = 16
    """Classes that a thread holds of each network."""
    part: int = 2**13
    """Classes of a long row that one program works on."""

    def num_warps(self, block: int, warp_size: int) -> int:
        """Warps of a program, of at most 1024 threads."""
        return max(1, min(block // self.per_thread, 1024) // warp_size)


SIZES = (Sizes(), Sizes(part=2**12), Sizes(per_thread=8, part=2**12), Sizes(per_thread=32))
"""What is tried on a GPU; the first is what is used where nothing may be tried."""
_MARGIN = 1.05
"""How much faster than the first another must be: noise is no reason to change."""
_chosen: dict[tuple[object, ...], Sizes] = {}


@functools.cache
def _programs() -> ModuleType | str:
    """The Triton code, or why there is none. Triton takes a second to load, so it is loaded when it is needed."""
    try:
        triton = importlib.import_module("triton")
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError)
        return "Triton is not installed" if missing else f"Triton cannot be loaded: {error}"
    if tuple(map(int, triton.__version__.split(".")[:2])) < OLDEST_TRITON:
        return f"Triton {triton.__version__} is older than {'.'.join(map(str, OLDEST_TRITON))}"
    return importlib.import_module("tpkd.objectives.kernels.gpu_rows")


def is_interpreted() -> bool:
    """Whether Triton was told to run programs in Python, on a CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def why_not() -> str | None:
    """Why batches on an accelerator, if there is one, are computed as tensor code; `None` where Triton does it."""
    programs = _programs()
    if isinstance(programs, str):
        return programs
    return None if torch.cuda.is_available() or is_interpreted() else "torch finds no NVIDIA or AMD GPU"


def is_ready(student: Tensor) -> bool:
    """Whether there is Triton, and the batch where its programs run."""
    return _runs_on(student.device.type)


def _runs_on(device: str) -> bool:
    return (device == "cuda" or (device == "cpu" and is_interpreted())) and not isinstance(_programs(), str)


# What torch.compiler.assume_constant_result does; to call it would load the whole compiler. Else every call of a
# compiled graph would look whether the environment has changed.
_runs_on._dynamo_marked_constant = True  # type: ignore[attr-defined]


def values_and_direction(batch: Batch) -> Outcome:
    """See `tpkd.objectives.kernels.values_and_direction`. Reads no value."""
    student, teacher, labels, valid, beta, weight, wanted, temperature, overwrite = batch
    assert isinstance(teacher, Tensor)
    z, zt, direction = unit_stride(student), unit_stride(teacher), batch.direction_memory()
    assert z is student or not overwrite
    losses = student.new_empty(student.shape[0], dtype=torch.float32)
    counts = torch.ones_like(labels, dtype=torch.uint8) if valid is None else valid.contiguous().view(torch.uint8)
    # Where no direction is wanted, none is written.
    tensors = (z, zt, z if direction is None else direction, labels.contiguous(), counts, losses)
    run = functools.partial(_run, beta=beta, temperature=temperature, weight=weight, wanted=wanted)
    with torch.cuda.device(student.device) if student.is_cuda else nullcontext():  # launches are on the current device
        if student.shape[0]:
            run(tensors, choose_sizes(run, tensors, wanted, temperature != 1))
    return Outcome(losses, direction, losses.sum() * weight)


def choose_sizes(run: Callable[[tuple[Tensor, ...], Sizes], None], tensors: tuple[Tensor, ...], *kind: bool) -> Sizes:
    """The sizes of this and every later batch of its kind: the fastest ones, if now is a time to try.

    A CUDA graph that is being captured can try nothing. What is tried works on some rows, and writes elsewhere.
    """
    z, fixed = tensors[0], torch.are_deterministic_algorithms_enabled() or os.environ.get("TPKD_AUTOTUNE") == "0"
    if fixed or not z.is_cuda:
        return SIZES[0]
    key = (torch.cuda.get_device_name(z.device), z.shape[1], z.dtype, tensors[1].dtype, *kind)
    if key not in _chosen:
        _chosen[key] = SIZES[0]
        with suppress(torch.OutOfMemoryError):  # then there is no room to try anything
            _chosen[key] = SIZES[0] if torch.cuda.is_current_stream_capturing() else _fastest(run, tensors)
    return _chosen[key]


def _fastest(run: Callable[..., None], tensors: tuple[Tensor, ...]) -> Sizes:
    few = [tensor[:_TIMED_ROWS] for tensor in tensors]
    few[2], few[5] = torch.empty_like(few[0]), torch.empty_like(few[5])
    bench = importlib.import_module("triton.testing").do_bench  # UNTRIED: there was no GPU to write this on
    times = {"warmup": 5, "rep": 20, "return_mode": "min"}  # milliseconds
    taken = {sizes: bench(functools.partial(run, few, sizes), **times) for sizes in SIZES}
    best = min(taken, key=taken.__getitem__)
    return best if _MARGIN * taken[best] < taken[SIZES[0]] else SIZES[0]


def _run(
    tensors: tuple[Tensor, ...], sizes: Sizes, *, beta: float, temperature: float, weight: float, wanted: bool
) -> None:
    """Whole rows in one launch; long ones in four, for as many at a time as there is memory for what is kept."""
    num_rows, num_classes = tensors[0].shape
    settings = (*(tensor.stride(0) for tensor in tensors[:3]), num_classes, beta, temperature, weight)
    tempered = temperature != 1
    if num_classes <= LONGEST_WHOLE_ROW:
        block = 1 << (num_classes - 1).bit_length()
        _launch("whole_rows", (num_rows,), (*tensors, *settings), sizes, WANTED=wanted, TEMPERED=tempered, BLOCK=block)
        return
    parts = -(-num_classes // sizes.part)
    padded = 1 << (parts - 1).bit_length()
    room = max(64, HELD // padded)
    most = min(num_rows, max(1, _SCRATCH_BYTES // (4 * parts * (room + 8))))
    widths = (6 * parts, parts, parts, room * parts, 1, 1)  # sums, roots, counts, what is below the roots; lag, root
    kept = [tensors[5].new_empty((most, width)) for width in widths]
    kept[2] = kept[2].view(torch.int32)
    constants = {"PARTS": padded, "ROOM": room, "BLOCK": sizes.part}
    for start in range(0, num_rows, most):
        given = (*(tensor[start : start + most] for tensor in tensors), *kept, *settings)
        rows = min(most, num_rows - start)
        for number in (0, 1) if wanted else (0,):
            _launch("parts_of_rows", (rows, parts), given, sizes, PASS=number, TEMPERED=tempered, **constants)
        _launch("row_roots", (rows,), given, sizes, WANTED=wanted, **constants)
        if wanted:
            _launch("parts_of_rows", (rows, parts), given, sizes, PASS=2, TEMPERED=tempered, **constants)


def _launch(program: str, grid: tuple[int, ...], given: tuple[object, ...], sizes: Sizes, **constants: int) -> None:
    warps = sizes.num_warps(constants["BLOCK"], 64 if torch.version.hip else 32)
    # With debug alone, a label out of range stops the program, as it does in torch's cross-entropy.
    options = {"num_warps": warps, "debug": True, "sanitize_overflow": False}
    getattr(_programs(), program)[grid](*given, **constants, **options)
