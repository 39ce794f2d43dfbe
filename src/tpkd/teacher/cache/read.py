"""Read a cache: rows by (sample id, view id) through memory maps, never from a cache that does not match."""

import weakref
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float32, Shaped
from torch import Tensor

from tpkd.arrays import ArrayFile
from tpkd.errors import InputError
from tpkd.geometry.top_k import EMPTY, TopK, check_top_k
from tpkd.teacher.cache.columns import TOP_K_COLUMNS
from tpkd.teacher.cache.contents import Contents, damaged_index, damaged_shards, read_contents
from tpkd.teacher.cache.entries import INDEX_NAME
from tpkd.teacher.cache.index import SortedIndex
from tpkd.teacher.cache.keys import Keys, as_keys
from tpkd.teacher.cache.maps import close_maps
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import RowIndex
from tpkd.teacher.cache.runs import find_runs, run_index
from tpkd.teacher.cache.shard_set import ShardSet

Ids = Sequence[int] | np.ndarray | Tensor

BLOCK_ROWS = 8192
"""Rows that are looked at together where all rows are."""


class Index(Protocol):
    """Finds rows."""

    def find(self, sample_ids: Keys, view_ids: Keys) -> Keys:
        """The row of each key, -1 where there is none."""


class TeacherCache:
    """An open cache: its manifest and its rows. Made by `open_cache`."""

    def __init__(self, contents: Contents, shards: ShardSet) -> None:
        """Make the rows of the written shards findable."""
        self.directory, self.manifest = contents.directory, contents.manifest
        self._contents, self._shards = contents, shards
        self._rows_written = contents.rows_written
        self._index = _index(contents, shards)
        weakref.finalize(self, close_maps)

    @cached_property
    def sample_ids(self) -> Keys:
        """The sample id of every row in order: eight bytes for each, read at the first use."""
        return self._shards.all_of("sample_ids")

    @cached_property
    def view_ids(self) -> Keys:
        """The view id of every row in order, like `sample_ids`."""
        return self._shards.all_of("view_ids")

    def key_blocks(self, count: int) -> Iterator[tuple[Keys, Keys]]:
        """Sample and view ids of all rows in order, at most `count` at a time."""
        for sample_ids, view_ids in self._shards.key_blocks():
            for start in range(0, len(sample_ids), count):
                yield sample_ids[start : start + count].copy(), view_ids[start : start + count].copy()

    @property
    def recipe(self) -> CacheRecipe:
        """What the rows were computed from."""
        return self.manifest.recipe

    @property
    def fingerprint(self) -> str:
        """SHA-256 of recipe, keys and labels."""
        return self.manifest.fingerprint

    @property
    def answers_sha256(self) -> str:
        """SHA-256 of what decides the logits: what a run is bound to, whatever else a row holds."""
        return self.manifest.answers_sha256

    @property
    def num_views(self) -> int:
        """How many different views."""
        return self.manifest.views

    @property
    def top_k(self) -> int | None:
        """How many of the largest classes a row keeps; None where it keeps all logits."""
        return self.recipe.top_k

    def __len__(self) -> int:
        """How many rows are written."""
        return self._rows_written

    def read(self, sample_ids: Ids, view_ids: Ids | None = None) -> Float32[Tensor, "batch *positions K"] | TopK:
        """The answers to a batch in float32: all logits, or what a truncated cache kept of them.

        Args:
            sample_ids: `(batch,)` integers.
            view_ids: `(batch,)` integers; may be left out of a cache with one view.

        Returns:
            Logits `(batch, K)`; from a cache with `top_k` the k largest log-probabilities and their classes
            `(batch, k)`, largest first, with those of the label and of the rest `(batch,)`. Where a row is a block of
            text, positions stand behind the batch.

        Raises:
            InputError: a row is not in the cache or not written; its (sample id, view id) is named.
        """
        answers = self._answers(self.locate(sample_ids, view_ids))
        return answers.map(_readable) if isinstance(answers, TopK) else answers.float()

    def read_tensor(self, name: str, sample_ids: Ids, view_ids: Ids | None = None) -> Shaped[Tensor, "batch ..."]:
        """The rows of one named tensor, like `read`: values in float32, classes in int64."""
        if name not in self.recipe.columns:
            expected = ", ".join(self.recipe.columns)
            raise InputError(f"{self.directory}: expected a tensor {expected}, found {name!r} asked for")
        return _readable(self._gather(name, self.locate(sample_ids, view_ids)))

    def locate(self, sample_ids: Ids, view_ids: Ids | None = None) -> Keys:
        """The row numbers of a batch, in manifest order; one call before a run shows that it will miss no row."""
        samples = as_keys("sample_ids", sample_ids)
        views = self._only_view(len(samples)) if view_ids is None else as_keys("view_ids", view_ids)
        if samples.shape != views.shape:
            raise ValueError(f"view_ids: expected {len(samples)} as sample_ids has, got {len(views)}")
        rows = self._index.find(samples, views)
        if rows.min(initial=0) < 0:
            row = int(rows.argmin())
            raise InputError(f"{self.directory}: sample {samples[row]}, view {views[row]}: no such row is written")
        return rows

    def array(self, sample_ids: Ids | None = None, view_ids: Ids | None = None) -> ArrayFile:
        """The logits as rows of a file, in the order of the ids, or in manifest order where there is one view.

        Blocks come in the dtype of the cache; pages are given back after each block, so any length stays small.

        Raises:
            InputError: a row is missing, no ids are given and a sample has several views, or the cache is truncated.
        """
        if self.top_k is not None:
            raise InputError(
                f"{self.directory}: expected the logits of all classes, found a cache that kept the {self.top_k} "
                f"largest of {self.recipe.num_classes}; build one without top_k"
            )
        rows, dtype = self._rows(sample_ids, view_ids), getattr(torch, self.recipe.dtype)
        shape = self.recipe.columns["logits"].shape(len(rows))

        def read(count: int) -> Iterator[Tensor]:
            for block in self._blocks(rows, count):
                assert isinstance(block, Tensor)
                yield block

        return ArrayFile(self.directory, shape, dtype, read, self.recipe.class_names)

    def blocks(
        self, count: int, sample_ids: Ids | None = None, view_ids: Ids | None = None
    ) -> Iterator[Tensor] | Iterator[TopK]:
        """The answers at most `count` rows at a time, in the order of `array`; of a truncated cache as `TopK`.

        Values come in the dtype of the cache, classes in int64.
        """
        if count < 1:
            raise ValueError(f"count: expected at least 1, got {count}")
        return self._blocks(self._rows(sample_ids, view_ids), count)

    def check_rows(self) -> None:
        """Look at every row of a truncated cache for what no build writes.

        Raises:
            InputError: a class is out of range or kept twice, or a log-probability is above zero or nan.
        """
        if self.top_k is None:
            return
        count = self.recipe.rows_of(BLOCK_ROWS)
        for place, entry in enumerate(self._contents.shards):
            first, path = self.manifest.bounds(self.manifest.shard_numbers[place])[0], self._shards.path(place)
            for start in range(0, entry.rows, count):
                rows = range(first + start, first + min(start + count, entry.rows))
                name = f"{path}: from row {start} on" if start else str(path)
                (block,) = self._blocks(rows, count)
                try:
                    check_top_k(block, self.recipe.num_classes, name=name)
                except ValueError as error:
                    raise InputError(str(error)) from error

    def check_index(self) -> None:
        """Look every row up.

        Raises:
            InputError: the index leads to another row, or to none.
        """
        row = self.manifest.row_numbers.start
        for samples, views in self.key_blocks(BLOCK_ROWS):
            wrong = np.flatnonzero(self._index.find(samples, views) != np.arange(row, row + len(samples)))
            if len(wrong):
                key = f"sample {samples[wrong[0]]}, view {views[wrong[0]]}"
                raise InputError(f"{self.directory}: {INDEX_NAME}: {key}: expected row {row + wrong[0]}, found another")
            row += len(samples)

    def _rows(self, sample_ids: Ids | None, view_ids: Ids | None) -> Keys | range:
        if sample_ids is not None:
            return self.locate(sample_ids, view_ids)
        self._only_view(0)
        first = self.manifest.row_numbers.start
        return range(first, first + len(self))

    def _blocks(self, rows: Keys | range, count: int) -> Iterator[Any]:
        for start in range(0, len(rows), count):
            block = rows[start : start + count]
            block = np.arange(block.start, block.stop) if isinstance(block, range) else block
            yield self._answers(block)
            self._shards.release(block)

    def _answers(self, rows: Keys) -> Tensor | TopK:
        if self.top_k is None:
            return self._gather("logits", rows)
        columns = {name: self._gather(name, rows) for name in TOP_K_COLUMNS}
        indices = columns["indices"].long()
        if self.recipe.top_p is not None:  # elsewhere no place is empty, and a class beyond the last is damage
            indices.masked_fill_(indices == self.recipe.num_classes, EMPTY)
        return TopK(**columns | {"indices": indices})

    def _only_view(self, count: int) -> Keys:
        if self.num_views != 1:
            raise InputError(f"{self.directory}: expected sample and view ids: every sample has {self.num_views} views")
        return np.full(count, self._view if count else 0)

    @cached_property
    def _view(self) -> int:
        """The view id of the first row."""
        return int(next(self.key_blocks(1))[1][0])

    def _gather(self, name: str, rows: Keys) -> Tensor:
        column = self.recipe.columns[name]
        dtype = getattr(torch, column.dtype)
        if not len(rows):
            return torch.empty(column.shape(0), dtype=dtype)
        return torch.frombuffer(self._shards.gather(name, rows), dtype=dtype).view(column.shape(len(rows)))


def _readable(values: Tensor) -> Tensor:
    """In the types to compute in: most operations do not take half precision or narrow integers."""
    return values.float() if values.is_floating_point() else values.long()


def _index(contents: Contents, shards: ShardSet) -> Index:
    """By arithmetic, by the file of the index, or by a table in memory, which an unfinished cache may need."""
    manifest = contents.manifest
    if contents.runs is not None:
        return contents.runs
    if contents.index is not None:
        return SortedIndex(contents.directory, contents.index, manifest.samples, manifest.rows)
    keys, first = (shards.all_of("sample_ids"), shards.all_of("view_ids")), manifest.row_numbers.start
    runs = run_index([find_runs(*keys, manifest.views)], manifest.views, first)
    return RowIndex(*keys, first) if runs is None else runs


def open_cache(
    directory: str | Path, *, expected: CacheRecipe | None = None, check: bool = True, partial: bool = False
) -> TeacherCache:
    """Open a cache for reading; what does not match, is not finished or is damaged is refused here, by name.

    Args:
        directory: where `build_cache` wrote it.
        expected: what the caller would have computed; every field that differs is named.
        check: hash every file (about a second per gigabyte), so that no flipped byte is ever read, and look at all
            keys, and at the classes that a truncated cache names. Without it only sizes are looked at, and the header
            of a shard when a row of it is read: for a second opening of a cache that was checked.
        partial: accept a cache whose build is not finished; its unwritten rows are refused when asked for.

    Example:
        >>> open_cache("/no/such/cache")
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: /no/such/cache: expected a teacher cache, found no manifest.json
    """
    contents = read_contents(Path(directory))
    manifest = contents.manifest
    if expected is not None and (differences := expected.differences(manifest.recipe)):
        raise InputError(f"{directory}: this cache was computed from something else: {'; '.join(differences)}")
    if manifest.part is not None and not partial:
        raise InputError(f"{directory}: expected a cache, found {manifest.part}; `tpkd cache merge` joins the parts")
    if not contents.complete and not partial:
        raise InputError(f"{directory}: {contents.missing}; build it again to compute the rest")
    shards = ShardSet(contents)
    if check:
        for problem in (*damaged_shards(contents).values(), damaged_index(contents)):
            if problem is not None:
                raise InputError(problem)
    if check or contents.journal is None:  # where there is no journal, all keys are read anyway
        shards.check_keys()
    try:
        cache = TeacherCache(contents, shards)
    except ValueError as error:  # keys that no build writes: the same row twice
        raise InputError(f"{directory}: {error}") from error
    if check:
        cache.check_rows()
    return cache
