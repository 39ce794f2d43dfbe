"""Times of several calls taken in turns, so that whatever the machine does meets all of them alike."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping


def interleaved_seconds(
    calls: Mapping[str, Callable[[], object]], *, seconds: float = 3.0, least: int = 7, most: int = 300
) -> dict[str, float]:
    """The lower quartile of every call's times over rounds in which each is called once.

    The first two rounds warm up; then as many follow as fit in `seconds`, between `least` and `most`.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    gc.collect()
    gc.disable()
    try:
        for name in list(calls) * 2:
            calls[name]()
        end = time.perf_counter() + seconds
        while len(times[name]) < least or (time.perf_counter() < end and len(times[name]) < most):
            for name, call in calls.items():
                start = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - start)
    finally:
        gc.enable()
    return {name: sorted(taken)[len(taken) // 4] for name, taken in times.items()}


def paired_ratio(call: Callable[[], object], other: Callable[[], object], *, pairs: int = 10) -> float:
    """How many times as long one call takes as another: the median over pairs of neighbours, either one first in turn.

    Where both take long, a ratio of neighbours is surer than one of two medians: a slow minute meets both.
    """

    def seconds(timed: Callable[[], object]) -> float:
        start = time.perf_counter()
        timed()
        return time.perf_counter() - start

    call(), other()  # warm up
    ratios = []
    for pair in range(pairs):
        if pair % 2:
            above = seconds(call)
            ratios.append(above / seconds(other))
        else:
            below = seconds(other)
            ratios.append(seconds(call) / below)
    return statistics.median(ratios)
