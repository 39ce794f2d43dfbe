"""State dicts on disk: safetensors, or torch's own files, from which only tensors are read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tpkd.arrays.torch_files import load_tensors
from tpkd.errors import InputError
from tpkd.files import open_safetensors

PICKLED = (".pth", ".pt", ".bin")
"""Suffixes of torch's own format."""

STATE_KEYS = ("state_dict", "model", "model_state_dict")
"""Keys under which checkpoints of other programs store the weights, next to epoch, optimiser and the like."""


@dataclass(frozen=True)
class StateFile:
    """The tensors of a file by name."""

    place: str
    """Its name in messages: the file and, in a checkpoint, the entry."""
    key: str | None
    """The entry of a checkpoint that holds the weights; None if the file is itself a state dict."""
    shapes: dict[str, tuple[int, ...]]
    tensor: Callable[[str], Tensor]


@contextmanager
def open_state(path: str | Path) -> Iterator[StateFile]:
    """Open a `.safetensors`, `.pth`, `.pt` or `.bin` file and keep it open while its tensors are read.

    Raises:
        InputError: the file is missing or damaged, or reading it would run code.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "checkpoint.pth"
        >>> torch.save({"epoch": 3, "state_dict": {"weight": torch.ones(2)}}, file)
        >>> with open_state(file) as state:
        ...     state.key, state.shapes
        ('state_dict', {'weight': (2,)})
    """
    path = Path(path)
    if path.suffix in PICKLED:
        yield _read_pickled(path)
        return
    if path.suffix != ".safetensors":
        raise InputError(f"{path}: expected a .safetensors, .pth, .pt or .bin file, found the suffix {path.suffix!r}")
    with open_safetensors(path) as archive:
        shapes = {name: tuple(archive.get_slice(name).get_shape()) for name in archive.keys()}  # noqa: SIM118
        yield StateFile(str(path), None, shapes, archive.get_tensor)


def _read_pickled(path: Path) -> StateFile:
    content = load_tensors(path)
    key = _state_key(path, content)
    place = str(path) if key is None else f"{path} ({key!r})"
    state: dict[str, Tensor] = content if key is None else content[key]
    for name, value in state.items():
        _check_entry(path if key is None else f"{path}: {key!r}", name, value)
    return StateFile(place, key, {name: tuple(value.shape) for name, value in state.items()}, state.__getitem__)


def _state_key(path: Path, content: Any) -> str | None:
    """The key of the state dict; None if the whole file is one."""
    expected = f"expected a state dict, or one under {', '.join(STATE_KEYS)}"
    if not isinstance(content, dict):
        raise InputError(f"{path}: {expected}, found {type(content).__name__}")
    if any(isinstance(value, Tensor) for value in content.values()):
        return None
    keys = [key for key in STATE_KEYS if isinstance(content.get(key), dict) and content[key]]
    if len(keys) != 1:
        found = ", ".join(sorted(map(str, content))[:8]) or "none"
        raise InputError(f"{path}: {expected}, found the keys {found}")
    return keys[0]


def _check_entry(place: str | Path, name: Any, value: Any) -> None:
    if not isinstance(name, str):
        raise InputError(f"{place}: expected names that are strings, found {name!r}")
    if not isinstance(value, Tensor):
        raise InputError(f"{place}: {name}: expected a tensor, found {type(value).__name__}")
    if value.layout != torch.strided or value.is_quantized or value.is_complex() or value.device.type != "cpu":
        found = f"{value.dtype} in layout {value.layout} on {value.device.type}"
        raise InputError(f"{place}: {name}: expected a dense tensor of real numbers, found {found}")
