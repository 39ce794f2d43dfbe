"""Peak memory of a call, counted from the profiler's memory events: the same number in every run."""

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile


def peak_bytes(call: Callable[[], object]) -> int:
    """The most bytes that `call` held at a time beyond what existed before it."""
    return held_and_peak_bytes(call)[1]


def held_and_peak_bytes(call: Callable[[], object]) -> tuple[int, int]:
    """The bytes that `call` leaves behind, and the most that it held at a time, beyond what existed before it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        call()
    events = [event for event in recorded.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = torch.tensor([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())])
    return (int(held.sum()), max(0, int(held.cumsum(0).max()))) if len(held) else (0, 0)
