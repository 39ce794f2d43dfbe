"""The loss of a linear head in chunks beside the dense loss of its logits: memory at three lengths, time at one."""

from dataclasses import dataclass

import torch
from benchmarks.memory import peak_bytes
from benchmarks.timing import interleaved_seconds
from torch import Tensor
from torch.nn.functional import linear

from tpkd.objectives import tpkd_loss
from tpkd.objectives.linear import linear_tpkd_loss

WIDTH, NUM_CLASSES = 256, 50_000
LENGTHS = (1024, 4096, 8192)
TIMED_ROWS = 1024


@dataclass(frozen=True)
class LinearResult:
    """Bytes beyond inputs and gradients by number of rows, and seconds of both at `TIMED_ROWS`."""

    bytes_beyond: dict[int, int]
    dense_bytes_beyond: int
    chunked_seconds: float
    dense_seconds: float


def _inputs(rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows)
    features = torch.randn(rows, WIDTH, generator=generator).requires_grad_()
    weight = (torch.randn(NUM_CLASSES, WIDTH, generator=generator) / WIDTH**0.5).requires_grad_()
    # One teacher for all rows: the memory of the inputs is not what is measured.
    teacher = torch.randn(1, NUM_CLASSES, generator=generator).expand(rows, -1)
    return features, weight, teacher, torch.randint(NUM_CLASSES, (rows,), generator=generator)


def measure_linear(seconds: float) -> LinearResult:
    """Peaks by the profiler, and times taken in turns."""

    def beyond(rows: int, *, dense: bool) -> int:
        features, weight, teacher, labels = _inputs(rows)

        def call() -> None:
            if dense:
                tpkd_loss(linear(features, weight), teacher, labels).backward()
            else:
                linear_tpkd_loss(features, weight, teacher, labels).backward()

        return peak_bytes(call) - 4 * (features.numel() + weight.numel())

    features, weight, teacher, labels = _inputs(TIMED_ROWS)

    def chunked_call() -> None:
        features.grad = weight.grad = None
        linear_tpkd_loss(features, weight, teacher, labels).backward()

    def dense_call() -> None:
        features.grad = weight.grad = None
        tpkd_loss(linear(features, weight), teacher, labels).backward()

    times = interleaved_seconds({"chunked": chunked_call, "dense": dense_call}, seconds=4 * seconds, least=5)
    return LinearResult(
        {rows: beyond(rows, dense=False) for rows in LENGTHS},
        beyond(TIMED_ROWS, dense=True),
        times["chunked"],
        times["dense"],
    )
