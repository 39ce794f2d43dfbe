"""The index of a cache whose keys are in any order: a sorted file of which a look-up reads two pages for each row."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import numpy as np

from tpkd.files import publish, sha256, writing
from tpkd.teacher.cache.entries import INDEX_NAME, IndexEntry
from tpkd.teacher.cache.keys import Keys, check_width, twice
from tpkd.teacher.cache.sorting import SORTED_AT_ONCE, SortedKeys, Table
from tpkd.teacher.cache.tensors import Layout, file_bytes, header_bytes, open_tensors, tensor_places

FENCE = 64
"""Samples between two of those that are kept in memory."""
AT_ONCE = 4096
"""Keys that are looked up together: each compares itself with all samples between two fences."""


def index_layout(samples: int, rows: int, width: int) -> Layout:
    """The tensors of an index: all sample ids in order, every 64th of them, and the rows of each sample's views.

    Where the last line of 64 samples is not full, the last sample is repeated.

    Example:
        >>> {name: (dtype.name, shape) for name, (dtype, shape) in index_layout(1000, 2000, 2).items()}
        {'fences': ('int64', (16,)), 'samples': ('int64', (16, 64)), 'rows': ('int32', (1000, 2))}
    """
    row = np.dtype(np.int32 if rows <= np.iinfo(np.int32).max else np.int64)
    keys, fences = np.dtype(np.int64), -(-samples // FENCE)
    return {"fences": (keys, (fences,)), "samples": (keys, (fences, FENCE)), "rows": (row, (samples, width))}


def write_index(
    directory: Path, keys: Iterable[tuple[Keys, Keys]], samples: int, *, at_once: int = SORTED_AT_ONCE
) -> IndexEntry:
    """Publish the index of a cache; at most `at_once` keys are in memory at a time.

    Args:
        directory: of the cache.
        keys: sample and view ids of all rows in order, in blocks.
        samples: how many different sample ids there are.
        at_once: how many keys to sort at a time.

    Raises:
        ValueError: two rows have the same key, or there is another number of samples.
    """
    path = directory / INDEX_NAME
    with writing(path), SortedKeys(directory, at_once) as ordered:
        for sample_ids, view_ids in keys:
            ordered.add(sample_ids, view_ids)
        width = check_width(samples, ordered.rows, ordered.lowest_view, ordered.highest_view)
        layout = index_layout(samples, ordered.rows, width)
        with publish(path) as file:
            file.write(header_bytes(layout))
            file.truncate(file_bytes(layout))
            _fill(file, layout, _by_sample(ordered.merged()))
    return IndexEntry(INDEX_NAME, width, file_bytes(layout), sha256(path))


def _by_sample(blocks: Iterator[Table]) -> Iterator[Table]:
    """The same keys, cut so that no sample is in two blocks."""
    held: Table = np.zeros((0, 3), np.int64)
    for block in blocks:
        joined = np.concatenate([held, block])
        start = int(joined[:, 0].searchsorted(joined[-1, 0]))
        held = joined[start:]
        if start:
            yield joined[:start]
    yield held


def _fill(file: IO[bytes], layout: Layout, blocks: Iterator[Table]) -> None:
    """Write the tensors of an index side by side, each from its own place on."""
    places, (samples, width) = tensor_places(layout), layout["rows"][1]
    count, ids = 0, np.zeros(0, np.int64)
    for table in blocks:
        same = np.flatnonzero((table[1:, :2] == table[:-1, :2]).all(1))
        if len(same):
            raise twice(*table[same[0], :2])
        starts = np.flatnonzero(np.diff(table[:, 0], prepend=~table[:1, 0]))
        ids = table[starts, 0]
        rows = np.full((len(ids), width), -1, layout["rows"][0])
        rows[ids.searchsorted(table[:, 0]), table[:, 1]] = table[:, 2]
        for name, values in (("fences", ids[-count % FENCE :: FENCE]), ("samples", ids), ("rows", rows)):
            file.seek(places[name])
            file.write(np.ascontiguousarray(values).data)
            places[name] += values.nbytes
        count += len(ids)
        if count > samples:
            break
    if count != samples:
        raise ValueError(f"sample_ids: expected {samples} different ones, got {count} or more")
    file.seek(places["samples"])
    file.write(np.full(-samples % FENCE, ids[-1]).data)


class SortedIndex:
    """Finds the row of a key in the file that `write_index` wrote.

    In memory is every 64th sample id alone. A look-up compares a sample with the line of 64 ids that begins with one of
    them, which lies on one page or two of the file, and reads the row from another page.
    """

    def __init__(self, directory: Path, entry: IndexEntry, samples: int, rows: int) -> None:
        """Map the file.

        Raises:
            InputError: the file is missing, of another size, or holds other tensors.
        """
        self._file = open_tensors(directory / entry.file, index_layout(samples, rows, entry.width), entry.bytes)
        pages = self._file.map()
        self._samples, self._rows = (self._file.array(pages, name) for name in ("samples", "rows"))
        self._fences = self._file.array(pages, "fences").copy()
        self._total = rows

    def find(self, sample_ids: Keys, view_ids: Keys) -> Keys:
        """The row of each key, -1 where there is none."""
        found = np.empty(len(sample_ids), np.int64)
        for start in range(0, len(sample_ids), AT_ONCE):
            block = slice(start, start + AT_ONCE)
            found[block] = self._find(sample_ids[block], view_ids[block])
        return found

    def _find(self, sample_ids: Keys, view_ids: Keys) -> Keys:
        fence = np.maximum(self._fences.searchsorted(sample_ids, side="right") - 1, 0)
        equal = self._samples[fence] == sample_ids[:, None]
        offset = equal.argmax(1)
        samples, width = self._rows.shape
        known = equal[np.arange(len(offset)), offset] & (view_ids >= 0) & (view_ids < width)
        place = np.minimum(fence * FENCE + offset, samples - 1)  # what repeats the last sample has no row of its own
        rows = self._rows[place, np.where(known, view_ids, 0)]
        return np.where(known & (rows < self._total), rows, -1)
