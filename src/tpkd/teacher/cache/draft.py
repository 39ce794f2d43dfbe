"""The shard that is being built, as far as it is: a build that is killed does not begin it again."""

import hashlib
import math
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tpkd.files import open_regular, reading, writing

DRAFT_ROWS = 8192
"""At most so many rows, or tokens of text, are computed again after a kill, and those of one forward pass."""

_NAME = ".draft-{:05d}"
_DIGEST_BYTES = 32
_BOUNDS = np.dtype("<i8")


class Draft:
    """A file beside the shards to which rows are appended while their shard is built, each piece with its checksum.

    What a kill has torn, and anything else that is not as it was written, ends what is taken from it.

    Example:
        >>> import tempfile
        >>> directory, arrays = Path(tempfile.mkdtemp()), {"x": np.arange(4.0)}
        >>> Draft(directory, 3).append(arrays, 0, 3)
        >>> again = {"x": np.zeros(4)}
        >>> Draft(directory, 3).restore(again), again["x"]
        (3, array([0., 1., 2., 0.]))
    """

    def __init__(self, directory: Path, index: int) -> None:
        """The draft of one shard."""
        self.path = directory / _NAME.format(index)
        self._length = 0

    def append(self, arrays: Mapping[str, np.ndarray], start: int, stop: int) -> None:
        """Put rows of a shard behind those that are there; they are on disk when this returns."""
        bounds = np.array([start, stop], _BOUNDS).tobytes()
        piece = bounds + b"".join(array[start:stop].tobytes() for array in arrays.values())
        frame = hashlib.sha256(piece).digest() + piece
        flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        with writing(self.path), os.fdopen(os.open(self.path, flags, 0o666), "wb") as file:
            file.truncate(self._length)
            file.seek(self._length)
            file.write(frame)
            file.flush()
            os.fsync(file.fileno())
        self._length += len(frame)

    def restore(self, arrays: Mapping[str, np.ndarray]) -> int:
        """Fill the arrays of the shard as far as it was built; returns how many rows that are."""
        rows, self._length = 0, 0
        if not self.path.exists():
            return rows
        total = min(map(len, arrays.values()))
        head = _DIGEST_BYTES + 2 * _BOUNDS.itemsize
        with open_regular(self.path) as file, reading(self.path):
            while len(begin := file.read(head)) == head:
                start, stop = np.frombuffer(begin, _BOUNDS, offset=_DIGEST_BYTES).tolist()
                if start != rows or not start < stop <= total:
                    break
                sizes = [(stop - start) * array[:1].nbytes for array in arrays.values()]
                data = file.read(sum(sizes))
                digest = hashlib.sha256(begin[_DIGEST_BYTES:] + data).digest()
                if len(data) != sum(sizes) or digest != begin[:_DIGEST_BYTES]:
                    break
                _fill(arrays, start, stop, data)
                rows = stop
                self._length += head + len(data)
        return rows

    def discard(self) -> None:
        """Remove the file; there may be none."""
        with writing(self.path, "removed"):
            self.path.unlink(missing_ok=True)


def _fill(arrays: Mapping[str, np.ndarray], start: int, stop: int, data: bytes) -> None:
    offset = 0
    for array in arrays.values():
        shape = (stop - start, *array.shape[1:])
        array[start:stop] = np.frombuffer(data, array.dtype, math.prod(shape), offset).reshape(shape)
        offset += array[start:stop].nbytes


def discard_drafts(directory: Path, *, keep: set[int]) -> None:
    """Remove the drafts of all shards but some."""
    kept = {_NAME.format(index) for index in keep}
    for path in directory.glob(".draft-*"):
        if path.name not in kept:
            with writing(path, "removed"):
                path.unlink()
