"""Read a cache: rows by (sample id, view id) through memory maps, never from a cache that does not match."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float32, Shaped
from torch import Tensor

from tpkd.arrays import ArrayFile
from tpkd.errors import InputError
from tpkd.geometry.top_k import TopK, check_top_k
from tpkd.teacher.cache.columns import TOP_K_COLUMNS
from tpkd.teacher.cache.manifest import Manifest, damaged_shards, read_manifest
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import Keys, RowIndex, as_keys, hash_keys
from tpkd.teacher.cache.shards import ShardFile, open_shard, release, standing_maps

Ids = Sequence[int] | np.ndarray | Tensor


class TeacherCache:
    """An open cache: manifest, keys in order, and the rows. Made by `open_cache`."""

    def __init__(self, directory: Path, manifest: Manifest, shards: tuple[ShardFile, ...]) -> None:
        """Index the rows that are written; `shards` are those of the manifest."""
        self.directory, self.manifest = directory, manifest
        # Keep the most recently used maps open; an evicted map lives until its last reader is done. No lock is needed,
        # so a fork cannot inherit a held one: at worst two threads map the same shard.
        limit = standing_maps()
        self._mapped = lru_cache(limit)(lambda index: memoryview(shards[index].map()))
        self._all_may_stand = len(shards) <= limit
        self._offsets = {
            name: np.array([shard.offsets[name] for shard in shards], np.int64) for name in self.recipe.columns
        }
        self.sample_ids, self.view_ids, written = _read_keys(shards)
        self._written = np.flatnonzero(written)
        self._index = RowIndex(self.sample_ids, self.view_ids, written)

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
        return len(self._written)

    def read(self, sample_ids: Ids, view_ids: Ids | None = None) -> Float32[Tensor, "batch K"] | TopK:
        """The answers to a batch in float32: all logits, or what a truncated cache kept of them.

        Args:
            sample_ids: `(batch,)` integers.
            view_ids: `(batch,)` integers; may be left out of a cache with one view.

        Returns:
            Logits `(batch, K)`; from a cache with `top_k` the k largest log-probabilities and their classes
            `(batch, k)`, largest first, with those of the label and of the rest `(batch,)`.

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
        shape = (len(rows), self.recipe.num_classes)

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
        shard_rows = self.manifest.shard_rows
        for index, entry in enumerate(self.manifest.shards):
            first, last = np.searchsorted(self._written, [index * shard_rows, (index + 1) * shard_rows])
            for block in self._blocks(self._written[first:last], shard_rows):
                try:
                    check_top_k(block, self.recipe.num_classes, name=str(self.directory / entry.file))
                except ValueError as error:
                    raise InputError(str(error)) from error

    def _rows(self, sample_ids: Ids | None, view_ids: Ids | None) -> Keys:
        if sample_ids is not None:
            return self.locate(sample_ids, view_ids)
        self._only_view(0)
        return self._written

    def _blocks(self, rows: Keys, count: int) -> Iterator[Any]:
        for start in range(0, len(rows), count):
            block = rows[start : start + count]
            yield self._answers(block)
            for shard in np.unique(block // self.manifest.shard_rows):
                release(self._mapped(int(shard)))

    def _answers(self, rows: Keys) -> Tensor | TopK:
        if self.top_k is None:
            return self._gather("logits", rows)
        columns = {name: self._gather(name, rows) for name in TOP_K_COLUMNS}
        return TopK(**columns | {"indices": columns["indices"].long()})

    def _only_view(self, count: int) -> Keys:
        if self.num_views != 1:
            raise InputError(f"{self.directory}: expected sample and view ids: every sample has {self.num_views} views")
        return np.repeat(self.view_ids[:1], count)

    def _gather(self, name: str, rows: Keys) -> Tensor:
        column = self.recipe.columns[name]
        dtype = getattr(torch, column.dtype)
        if not len(rows):
            return torch.empty(column.shape(0), dtype=dtype)
        width = column.row_bytes
        shard, place = np.divmod(rows, self.manifest.shard_rows)
        start = self._offsets[name][shard] + place * width
        if self._all_may_stand:
            # Joining slices of bytes costs a third of indexing an array per shard, as a batch touches most shards.
            places = zip(shard.tolist(), start.tolist(), (start + width).tolist(), strict=True)
            gathered = bytearray().join([self._mapped(index)[first:last] for index, first, last in places])
        else:
            gathered = self._copy_by_shard(shard, start, width)
        return torch.frombuffer(gathered, dtype=dtype).view(column.shape(len(rows)))

    def _copy_by_shard(self, shard: np.ndarray, start: np.ndarray, width: int) -> bytearray:
        """Shard by shard, so that a batch holds at most one map beyond those kept open."""
        order = shard.argsort(kind="stable")
        gathered, current = bytearray(len(order) * width), -1
        target, pages = memoryview(gathered), memoryview(b"")
        for position, index, first in zip(order.tolist(), shard[order].tolist(), start[order].tolist(), strict=True):
            if index != current:
                pages, current = self._mapped(index), index
            target[position * width : (position + 1) * width] = pages[first : first + width]
        return gathered


def _readable(values: Tensor) -> Tensor:
    """In the types to compute in: most operations do not take half precision or narrow integers."""
    return values.float() if values.is_floating_point() else values.long()


def _read_keys(shards: tuple[ShardFile, ...]) -> tuple[Keys, Keys, Bool[np.ndarray, "_"]]:
    """Sample ids, view ids and the bitmap of written rows of all shards, copied, so that no map has to stay open."""
    names = ("sample_ids", "view_ids", "written")
    parts: list[list[np.ndarray]] = [[np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.bool_)]]
    for shard in shards:
        pages = shard.map()
        for name, found in zip(names, parts, strict=True):
            found.append(shard.array(pages, name).copy())
    sample_ids, view_ids, written = map(np.concatenate, parts)
    return sample_ids, view_ids, written


def open_cache(
    directory: str | Path, *, expected: CacheRecipe | None = None, check: bool = True, partial: bool = False
) -> TeacherCache:
    """Open a cache for reading; what does not match, is not finished or is damaged is refused here, by name.

    Args:
        directory: where `build_cache` wrote it.
        expected: what the caller would have computed; every field that differs is named.
        check: hash every shard (about a second per gigabyte), so that no flipped byte is ever read, and look at the
            classes that a truncated cache names. Without it only sizes, headers and keys are looked at: for a second
            opening of a cache that was checked.
        partial: accept a cache whose build is not finished; its unwritten rows are refused when asked for.

    Example:
        >>> open_cache("/no/such/cache")
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: /no/such/cache: expected a teacher cache, found no manifest.json
    """
    directory = Path(directory)
    manifest = read_manifest(directory)
    if expected is not None and (differences := expected.differences(manifest.recipe)):
        raise InputError(f"{directory}: this cache was computed from something else: {'; '.join(differences)}")
    complete = manifest.rows_written == manifest.rows
    if not complete and not partial:
        raise InputError(
            f"{directory}: expected {manifest.rows} rows, found {manifest.rows_written} written; "
            "build it again to compute the rest"
        )
    if check:
        for problem in damaged_shards(directory, manifest).values():
            raise InputError(problem)
    shards = tuple(
        open_shard(directory / entry.file, manifest.recipe, entry.rows, entry.bytes) for entry in manifest.shards
    )
    try:
        cache = TeacherCache(directory, manifest, shards)
    except ValueError as error:  # keys that no build writes: the same row twice
        raise InputError(f"{directory}: {error}") from error
    found = hash_keys(cache.sample_ids, cache.view_ids)
    if complete and found != manifest.keys_sha256:
        raise InputError(f"{directory}: expected rows with keys {manifest.keys_sha256}, found {found}")
    if check:
        cache.check_rows()
    return cache
