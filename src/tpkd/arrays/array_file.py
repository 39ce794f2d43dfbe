"""One array or column of texts on disk: its shape, and its rows in blocks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from tpkd.errors import InputError, some


@dataclass(frozen=True)
class ArrayFile:
    """One array on disk, with checked metadata; rows are read on demand."""

    path: Path
    shape: tuple[int, ...]
    dtype: torch.dtype
    _read: Callable[[int], Iterator[Tensor]] = field(repr=False)
    class_names: tuple[str, ...] | None = field(default=None, repr=False)
    """Names of the columns, if the file has them."""

    def blocks(self, rows: int) -> Iterator[Tensor]:
        """The rows in order, `rows` at a time and the rest at the end, in the dtype of the file.

        Blocks are copied from plain reads or short-lived maps: a permanent map of a large file would stay resident.
        """
        if rows < 1:
            raise ValueError(f"rows: expected at least 1, got {rows}")
        yield from self._read(rows)


@dataclass(frozen=True)
class TextFile:
    """One text per row on disk, such as labels by name; rows are read on demand."""

    path: Path
    rows: int
    _read: Callable[[int], Iterator[list[str]]] = field(repr=False)

    def blocks(self, rows: int) -> Iterator[list[str]]:
        """The texts in order, `rows` at a time and the rest at the end."""
        if rows < 1:
            raise ValueError(f"rows: expected at least 1, got {rows}")
        yield from self._read(rows)


def choose_key(path: Path, names: Sequence[str], key: str) -> str:
    """Which of several named arrays to read: the one named `key`, or the only one.

    Args:
        path: the file, for the message.
        names: what it has.
        key: what is wanted.

    Example:
        >>> choose_key(Path("a.npz"), ["x"], "logits"), choose_key(Path("a.npz"), ["x", "logits"], "logits")
        ('x', 'logits')
    """
    if key in names:
        return key
    if len(names) == 1:
        return names[0]
    found = some(sorted(names), 8) or "none"
    raise InputError(f"{path}: expected an array named {key!r} or a single array, found {found}")


def check_rows(path: Path, shape: tuple[int, ...]) -> None:
    """Refuse a shape without rows, or with rows that hold nothing."""
    if not shape:
        raise InputError(f"{path}: expected an array with rows, found a single number")
    if shape[0] < 0 or min(shape[1:], default=1) < 1:
        raise InputError(f"{path}: expected rows with at least one number each, found shape {shape}")


def regrouped(parts: Iterable[Tensor], rows: int) -> Iterator[Tensor]:
    """The same rows in blocks of `rows`, the rest at the end, whatever lengths the parts have.

    Example:
        >>> [block.tolist() for block in regrouped([torch.arange(3), torch.arange(3, 7)], 2)]
        [[0, 1], [2, 3], [4, 5], [6]]
    """
    held: list[Tensor] = []
    count = 0
    for part in parts:
        held.append(part)
        count += len(part)
        if count < rows:
            continue
        whole = torch.cat(held)
        full = count - count % rows
        yield from (whole[start : start + rows] for start in range(0, full, rows))
        held, count = [whole[full:]], count - full
    if count:
        yield torch.cat(held)
