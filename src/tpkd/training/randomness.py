"""Every generator a run may draw from, as plain tensors: what a checkpoint keeps, and what a second look replays."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_NUMPY_WORDS = 624


def random_state() -> dict[str, Tensor]:
    """The state of Python's, NumPy's and torch's global generators, those of accelerators included.

    Example:
        >>> state = random_state()
        >>> drawn = torch.rand(3)
        >>> restore_random_state(state)
        >>> torch.equal(torch.rand(3), drawn)
        True
    """
    version, words, gauss = random.getstate()
    numpy: Any = np.random.get_state()
    _, keys, position, has_gauss, cached = numpy
    state = {
        "python": torch.tensor([version, *words], dtype=torch.int64),
        "python_gauss": torch.tensor([] if gauss is None else [gauss], dtype=torch.float64),
        "numpy": torch.tensor([*keys.tolist(), position, has_gauss], dtype=torch.int64),
        "numpy_gauss": torch.tensor([cached], dtype=torch.float64),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state |= {f"cuda.{index}": value for index, value in enumerate(torch.cuda.get_rng_state_all())}
    return state


def restore_random_state(state: Mapping[str, Tensor]) -> None:
    """Put every generator back to where `random_state` found it; those of devices that are not here are left out."""
    version, *words = state["python"].tolist()
    gauss = state["python_gauss"].tolist()
    random.setstate((version, tuple(words), gauss[0] if gauss else None))
    keys, (position, has_gauss) = state["numpy"][:_NUMPY_WORDS], state["numpy"][_NUMPY_WORDS:].tolist()
    words_of_numpy = keys.numpy().astype(np.uint32)
    np.random.set_state(("MT19937", words_of_numpy, position, has_gauss, state["numpy_gauss"].item()))
    torch.set_rng_state(state["torch"])
    for index in range(torch.cuda.device_count()):
        if f"cuda.{index}" in state:
            torch.cuda.set_rng_state(state[f"cuda.{index}"], index)


@contextmanager
def preserved() -> Iterator[None]:
    """Let others draw from the global generators, and go on as if they had not.

    Example:
        >>> before = torch.get_rng_state()
        >>> with preserved():
        ...     _ = torch.rand(3)
        >>> torch.equal(torch.get_rng_state(), before)
        True
    """
    now = random_state()
    try:
        yield
    finally:
        restore_random_state(now)


@contextmanager
def replayed(state: Mapping[str, Tensor], module: nn.Module) -> Iterator[None]:
    """Draw again what was drawn from `state` on, then go on as if nothing had happened.

    Buffers of the module, such as running statistics of a BatchNorm, are put back as well.
    """
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    with preserved():
        restore_random_state(state)
        try:
            yield
        finally:
            for buffer, value in buffers:
                buffer.copy_(value)
