"""What goes beyond the paper against the loss of the paper: temperature, soft labels, truncated teachers."""

import functools
from dataclasses import replace

import torch
from benchmarks.losses import DTYPES, SCALES, Case, Loss, cross_entropy, training_call
from benchmarks.memory import peak_bytes
from benchmarks.timing import interleaved_seconds
from torch import Tensor

from tpkd import top_k_tpkd_loss, tpkd_loss
from tpkd.teacher.cache.truncation import truncate

KEPT = 64
SHAPES = ((256, 1000), (64, 21841), (16, 151936))
MOST_OF_DENSE, MOST_OF_CE, MOST_BEYOND = 0.9, 1.25, 1.3
SCRATCH_BYTES = 4_000_000


def mixed(labels: Tensor, num_classes: int) -> Tensor:
    """Soft labels as mixup makes them."""
    whole = torch.nn.functional.one_hot(labels, num_classes).float()
    return 0.7 * whole + 0.3 * whole.roll(1, 0)


def losses_of(case: Case, inputs: tuple[Tensor, Tensor, Tensor]) -> dict[str, Loss]:
    """Every loss as a function of student, teacher and labels, what it takes instead prepared beforehand."""
    _, teacher, labels = inputs
    whole, soft = truncate(teacher, labels, KEPT), mixed(labels, case.num_classes)
    top_k = replace(whole, log_probs=whole.log_probs.half())  # as a cache keeps them
    known = {"label_log_probs": top_k.label_log_probs, "rest_log_probs": top_k.rest_log_probs}

    def from_top_k(student: Tensor, _: Tensor, labels: Tensor) -> Tensor:
        return top_k_tpkd_loss(student, top_k.log_probs, top_k.indices, labels, **known)

    def from_soft_labels(student: Tensor, teacher: Tensor, _: Tensor) -> Tensor:
        return tpkd_loss(student, teacher, soft)

    return {
        "CE": cross_entropy,
        "TPKD": tpkd_loss,
        "TPKD at T = 4": functools.partial(tpkd_loss, temperature=4.0),
        "TPKD of soft labels": from_soft_labels,
        f"TPKD of the top {KEPT}": from_top_k,
    }


def rows(seconds: float) -> list[tuple[str, float, float]]:
    """(what, measured, most) for every shape, kind of logits and dtype."""
    found = []
    for dtype in DTYPES:
        for count, num_classes in SHAPES:
            for kind in SCALES:
                found += measure(Case(count, num_classes, kind, dtype), seconds)
    return found


def measure(case: Case, seconds: float) -> list[tuple[str, float, float]]:
    """Times in turns and peak memory of one case."""
    inputs = case.make()
    calls = {name: training_call(loss, inputs) for name, loss in losses_of(case, inputs).items()}
    times = interleaved_seconds(calls, seconds=2 * seconds)
    where = f"({case.rows}, {case.num_classes}) {case.kind} {case.dtype}"
    *_, temperature, soft, top_k = times
    found = [
        (f"time, {name} / TPKD, {where}", times[name] / times["TPKD"], MOST_BEYOND) for name in (temperature, soft)
    ]
    if case.num_classes > 1000:
        found.append((f"time, {top_k} / TPKD, {where}", times[top_k] / times["TPKD"], MOST_OF_DENSE))
        found.append((f"time, {top_k} / CE, {where}", times[top_k] / times["CE"], MOST_OF_CE))
    width = {"float32": 4, "bfloat16": 2}[case.dtype]
    allowed = case.rows * case.num_classes * width + max(SCRATCH_BYTES, 4 * case.num_classes * width)
    for name in (temperature, soft, top_k):
        inputs[0].grad = None
        found.append((f"peak memory in MB, {name}, {where}", peak_bytes(calls[name]) / 1e6, allowed / 1e6))
    return found


if __name__ == "__main__":
    for what, measured, most in rows(1.0):
        print(f"{'met    ' if measured <= most else 'NOT MET'} {measured:8.3f} of {most:8.3f}  {what}", flush=True)
