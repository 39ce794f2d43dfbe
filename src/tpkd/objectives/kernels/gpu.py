"""The protected loss on NVIDIA and AMD GPUs (`gpu_rows.py`): which batches it takes, and how they are launched."""

import functools
import importlib
import os
from contextlib import nullcontext
from types import ModuleType

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from tpkd.geometry.top_k import TopK
from tpkd.objectives.kernels.cpu import unit_stride
from tpkd.objectives.kernels.tensor import Outcome

OLDEST_TRITON = (3, 6)
"""That of torch 2.10, the oldest torch that tpkd takes."""
LONGEST_WHOLE_ROW = 2**14
"""Classes of a row that fit into the registers of one program."""
PART = 2**13
"""Classes of a longer row that one program works on."""
PER_THREAD = 16
"""Classes that a thread holds of each network."""
HELD = 2**13
"""Numbers below the roots of its parts that are kept of a long row."""
_SCRATCH_BYTES = 16 * 2**20
"""What is kept of all long rows that are worked on at a time."""
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


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
    """Whether Triton was told to run programs in Python, on a CPU.

    Example:
        >>> is_interpreted() in (True, False)
        True
    """
    return os.environ.get("TRITON_INTERPRET") == "1"


def why_not() -> str | None:
    """Why batches on an accelerator, if there is one, are computed as tensor code; `None` where Triton does it.

    Example:
        >>> why_not() is None or isinstance(why_not(), str)
        True
    """
    programs = _programs()
    if isinstance(programs, str):
        return programs
    return None if torch.cuda.is_available() or is_interpreted() else "torch finds no NVIDIA or AMD GPU"


def takes(student: Float[Tensor, "..."], teacher: Float[Tensor, "..."] | TopK, labels: Tensor) -> bool:
    """Whether the batch is on a GPU, in the usual training dtypes, with a whole teacher and classes as labels.

    Example:
        >>> takes(torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, 3), torch.tensor([0, 1]))
        False
    """
    if not (student.is_cuda or (student.is_cpu and is_interpreted())) or isinstance(teacher, TopK):
        return False
    given = (student, teacher, labels)
    return (
        student.dtype in _DTYPES
        and teacher.dtype in _DTYPES
        and not labels.is_floating_point()
        and all(type(tensor) is Tensor and tensor.device == student.device for tensor in given)
        and not torch.compiler.is_exporting()  # an exported model runs without tpkd
        and (torch.compiler.is_compiling() or not (is_in_torch_dispatch_mode() or any(map(_is_zero, given))))
        and _has_programs()
    )


def _is_zero(tensor: Tensor) -> bool:
    """Whether it is said to be zero and holds no memory."""
    return tensor._is_zerotensor()


def _has_programs() -> bool:
    return not isinstance(_programs(), str)


# What torch.compiler.assume_constant_result does; to call it would load the whole compiler.
_has_programs._dynamo_marked_constant = True  # type: ignore[attr-defined]


def values_and_direction(
    student: Float[Tensor, "rows K"],
    teacher: Float[Tensor, "rows K"],
    labels: Int[Tensor, "rows"],
    valid: Bool[Tensor, "rows"] | None,
    beta: float,
    weight: float,
    wanted: bool,
    *,
    temperature: float = 1.0,
    overwrite: bool = False,
) -> Outcome:
    """See `tpkd.objectives.kernels.values_and_direction`, for a batch that `takes` accepts. Reads no value.

    Example:
        >>> batch = torch.tensor([[4.0, 1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5]]), torch.tensor([0])
        >>> values_and_direction(*batch, None, 0.5, 1.0, False).losses if takes(*batch) else torch.tensor([0.2023])
        tensor([0.2023])
    """
    z, zt = unit_stride(student), unit_stride(teacher)
    assert z is student or not overwrite
    losses = student.new_empty(student.shape[0], dtype=torch.float32)
    direction = None
    if wanted:
        direction = student if overwrite else torch.empty_like(student, memory_format=torch.contiguous_format)
    counts = torch.ones_like(labels, dtype=torch.uint8) if valid is None else valid.contiguous().view(torch.uint8)
    batch = (z, zt, direction, labels.contiguous(), counts, losses)
    launch = _whole_rows if student.shape[1] <= LONGEST_WHOLE_ROW else _parts_of_rows
    with torch.cuda.device(student.device) if student.is_cuda else nullcontext():  # launches are on the current device
        if student.shape[0]:
            launch(*batch, beta, temperature, weight)
    return Outcome(losses, direction, losses.sum() * weight)


def num_warps(block: int, warp_size: int) -> int:
    """Warps of a program: a thread holds PER_THREAD classes, and a program has at most 1024 threads.

    Example:
        >>> num_warps(2**14, 32), num_warps(2**14, 64), num_warps(64, 32)
        (32, 16, 1)
    """
    return max(1, min(block // PER_THREAD, 1024) // warp_size)


def _launch(program: str, grid: tuple[int, ...], *given: object, block: int, **constants: object) -> None:
    warps = num_warps(block, 64 if torch.version.hip else 32)
    # With debug alone, a label out of range stops the program, as it does in torch's cross-entropy.
    options = {"BLOCK": block, "num_warps": warps, "debug": True, "sanitize_overflow": False}
    getattr(_programs(), program)[grid](*given, **constants, **options)


def _whole_rows(
    z: Tensor,
    zt: Tensor,
    direction: Tensor | None,
    y: Tensor,
    valid: Tensor,
    losses: Tensor,
    beta: float,
    temperature: float,
    weight: float,
) -> None:
    rows, num_classes = z.shape
    v = z if direction is None else direction  # not written to where none is wanted
    strides, settings = (z.stride(0), zt.stride(0), v.stride(0)), (beta, temperature, weight)
    constants = {"WANTED": direction is not None, "TEMPERED": temperature != 1}
    given = (z, zt, v, y, valid, losses, *strides, num_classes, *settings)
    _launch("whole_rows", (rows,), *given, block=1 << (num_classes - 1).bit_length(), **constants)


def _parts_of_rows(
    z: Tensor,
    zt: Tensor,
    direction: Tensor | None,
    y: Tensor,
    valid: Tensor,
    losses: Tensor,
    beta: float,
    temperature: float,
    weight: float,
) -> None:
    """Four launches for as many rows at a time as there is memory for what is kept of them."""
    parts = -(-z.shape[1] // PART)
    padded = 1 << (parts - 1).bit_length()
    room = max(64, HELD // padded)
    most = max(1, _SCRATCH_BYTES // (4 * parts * (room + 8)))
    numbers, roots, counted, candidates = (
        z.new_empty((min(most, z.shape[0]), parts * width), dtype=dtype)
        for width, dtype in ((6, torch.float32), (1, torch.float32), (1, torch.int32), (room, torch.float32))
    )
    lags, zetas = torch.empty_like(losses), torch.empty_like(losses)
    strides, sizes = (z.stride(0), zt.stride(0)), {"PARTS": padded, "ROOM": room}
    for start in range(0, z.shape[0], most):
        chosen = slice(start, start + most)
        networks, classes = (z[chosen], zt[chosen]), (y[chosen], valid[chosen], numbers)
        grid, found = (networks[0].shape[0], parts), (roots, counted, candidates)
        settings: tuple[float, ...] = (*strides, z.shape[1], temperature)
        _launch("part_sums", grid, *networks, *classes, *settings, TEMPERED=temperature != 1, block=PART)
        if direction is not None:
            _launch("part_roots", grid, *networks, *classes, *found, *settings, **sizes, block=PART)
        results = (losses[chosen], lags[chosen], zetas[chosen])
        settings = (*strides, z.shape[1], parts, beta, temperature)
        wanted = {"WANTED": direction is not None, **sizes}
        _launch("row_roots", grid[:1], *networks, *classes, *found, *results, *settings, **wanted, block=PART)
        if direction is not None:
            v = direction[chosen]
            settings = (*strides, v.stride(0), z.shape[1], beta, temperature, weight)
            _launch("part_directions", grid, *networks, v, *classes, *results[1:], *settings, PARTS=padded, block=PART)
