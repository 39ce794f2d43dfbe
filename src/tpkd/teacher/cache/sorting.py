"""Sort more keys than fit in memory: runs that were sorted one at a time, merged from a temporary file."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import numpy as np
from jaxtyping import Int64

from tpkd.teacher.cache.keys import Keys

SORTED_AT_ONCE = 1 << 20
"""Keys that are sorted at a time, which takes some 90 bytes each."""

Table = Int64[np.ndarray, "_ 3"]
"""Sample id, view id and row number."""

_ROW_BYTES = 24


class SortedKeys:
    """The keys of rows in the order of (sample id, view id), each with the number of its row.

    Example:
        >>> with SortedKeys(Path("."), at_once=2) as keys:
        ...     keys.add(np.array([5, 3, 4]), np.array([0, 0, 0]))
        ...     [block.tolist() for block in keys.merged()]
        [[[3, 0, 1]], [[4, 0, 2], [5, 0, 0]]]
    """

    def __init__(self, directory: Path, at_once: int = SORTED_AT_ONCE) -> None:
        """Keep sorted runs in a file of `directory` that has no name, and so vanishes however the process ends."""
        self._directory, self._at_once = directory, at_once
        self._file: IO[bytes] | None = None
        self._ends: list[int] = []
        self._waiting: list[Table] = []
        self.rows = 0
        self.lowest_view = self.highest_view = 0

    def __enter__(self) -> "SortedKeys":
        """Nothing is opened before it is needed."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the temporary file."""
        if self._file is not None:
            self._file.close()

    def add(self, sample_ids: Keys, view_ids: Keys) -> None:
        """Take the keys of the next rows."""
        for start in range(0, len(sample_ids), self._at_once):
            samples, views = sample_ids[start : start + self._at_once], view_ids[start : start + self._at_once]
            self.lowest_view = min(self.lowest_view, int(views.min()))
            self.highest_view = max(self.highest_view, int(views.max()))
            self._waiting.append(np.stack([samples, views, np.arange(self.rows, self.rows + len(samples))], 1))
            self.rows += len(samples)
            if sum(map(len, self._waiting)) >= self._at_once:
                self._store()

    def _store(self) -> None:
        run = _sorted(self._waiting)
        self._waiting = []
        if self._file is None:
            self._file = TemporaryFile(  # noqa: SIM115  (closed with this object)
                dir=self._directory, prefix=".keys-", suffix=".partial"
            )
        self._file.write(run.data)
        self._ends.append((self._ends[-1] if self._ends else 0) + len(run))

    def merged(self) -> Iterator[Table]:
        """All keys in order, some at a time."""
        if self._file is None:
            if self._waiting:
                yield _sorted(self._waiting)
            return
        if self._waiting:
            self._store()
        runs = [_Run(self._file, start, end) for start, end in zip([0, *self._ends], self._ends, strict=False)]
        size = max(1, self._at_once // len(runs))
        while runs := [run for run in runs if run.fill(size)]:
            # Beyond the first key that a run has not shown yet, keys of other runs may be smaller than its next.
            limits = [tuple(run.shown[-1, :2]) for run in runs if run.has_more]
            yield _sorted([run.take(min(limits) if limits else None) for run in runs])


class _Run:
    """A sorted run in a file, and a piece of it in memory."""

    def __init__(self, file: IO[bytes], start: int, end: int) -> None:
        self._file, self._next, self._end = file, start, end
        self.shown: Table = np.zeros((0, 3), np.int64)

    @property
    def has_more(self) -> bool:
        return self._next < self._end

    def fill(self, size: int) -> bool:
        """Read the next piece where nothing is left of the last one; says whether there is something."""
        if not len(self.shown) and self.has_more:
            count = min(size, self._end - self._next)
            self._file.seek(self._next * _ROW_BYTES)
            self.shown = np.frombuffer(self._file.read(count * _ROW_BYTES), np.int64).reshape(-1, 3)
            self._next += len(self.shown)
        return len(self.shown) > 0

    def take(self, limit: tuple[int, int] | None) -> Table:
        """What is shown up to a key."""
        count = len(self.shown)
        if limit is not None:
            samples, views = self.shown[:, 0], self.shown[:, 1]
            first, last = int(samples.searchsorted(limit[0])), int(samples.searchsorted(limit[0], side="right"))
            count = first + int(views[first:last].searchsorted(limit[1], side="right"))
        taken, self.shown = self.shown[:count], self.shown[count:]
        return taken


def _sorted(tables: list[Table]) -> Table:
    joined = np.concatenate(tables)
    return np.ascontiguousarray(joined[np.lexsort((joined[:, 1], joined[:, 0]))])
