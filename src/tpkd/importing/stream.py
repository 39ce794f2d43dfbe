"""Runs of rows, in order, out of a file that is read once."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

Columns = dict[str, Tensor]
"""What a cache takes for some rows, by name: `logits`, or the fields of a `TopK`."""


class RowStream:
    """Runs of rows out of parts of any length; parts before a run are read and dropped.

    Example:
        >>> stream = RowStream(lambda: iter([{"x": torch.arange(3)}, {"x": torch.arange(3, 8)}]))
        >>> stream.read(1, 4), stream.read(6, 8), stream.read(0, 2)
        ({'x': tensor([1, 2, 3])}, {'x': tensor([6, 7])}, {'x': tensor([0, 1])})
    """

    def __init__(self, parts: Callable[[], Iterator[Columns]]) -> None:
        """Nothing is opened before the first row is read; a run before the last one opens the file anew."""
        self._parts = parts
        self._begin()

    def _begin(self) -> None:
        self._iterator, self._first = self._parts(), 0
        self._held: Columns = {}

    def read(self, start: int, stop: int) -> Columns:
        """The rows start..stop-1."""
        if start < self._first:
            self._begin()
        while (last := self._first + _length(self._held)) < stop:
            if last <= start:
                self._first, self._held = last, {}
            part = next(self._iterator)
            self._held = {name: _joined(self._held.get(name), rows) for name, rows in part.items()}
        found = {name: rows[start - self._first : stop - self._first] for name, rows in self._held.items()}
        self._held = {name: rows[stop - self._first :] for name, rows in self._held.items()}
        self._first = stop
        return found


def _length(columns: Columns) -> int:
    return len(next(iter(columns.values()))) if columns else 0


def _joined(held: Tensor | None, rows: Tensor) -> Tensor:
    return rows if held is None or not len(held) else torch.cat([held, rows])
