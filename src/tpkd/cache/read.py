"""Read a cache: rows by (sample id, view id) through memory maps, never from a cache that does not match."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from tpkd.arrays import ArrayFile
from tpkd.cache.manifest import Manifest, damaged_shards, read_manifest
from tpkd.cache.recipe import CacheRecipe
from tpkd.cache.rows import Keys, RowIndex, as_keys, hash_keys
from tpkd.cache.shards import Shard, open_shard
from tpkd.files import InputError

Ids = Sequence[int] | np.ndarray | Tensor


class TeacherCache:
    """An open cache: manifest, keys in order, and the rows. Made by `open_cache`."""

    def __init__(self, directory: Path, manifest: Manifest, shards: tuple[Shard, ...]) -> None:
        """Index the rows that are written; `shards` are those of the manifest."""
        self.directory, self.manifest = directory, manifest
        self.sample_ids, self.view_ids, written = (
            np.concatenate([np.zeros(0, dtype), *(shard.arrays[name] for shard in shards)])
            for name, dtype in (("sample_ids", np.int64), ("view_ids", np.int64), ("written", bool))
        )
        self._written = np.flatnonzero(written)
        self._index = RowIndex(self.sample_ids, self.view_ids, written)
        self._shards = shards
        self._buffers = {name: [shard.arrays[name].data.cast("B") for shard in shards] for name in self.recipe.columns}

    @property
    def recipe(self) -> CacheRecipe:
        """What the rows were computed from."""
        return self.manifest.recipe

    @property
    def fingerprint(self) -> str:
        """SHA-256 of recipe and keys."""
        return self.manifest.fingerprint

    @property
    def answers_sha256(self) -> str:
        """SHA-256 of what decides the logits: what a run is bound to, whatever else a row holds."""
        return self.manifest.answers_sha256

    @property
    def num_views(self) -> int:
        """How many different views."""
        return self.manifest.views

    def __len__(self) -> int:
        """How many rows are written."""
        return len(self._written)

    def read(self, sample_ids: Ids, view_ids: Ids | None = None) -> Float32[Tensor, "batch K"]:
        """The logits of a batch.

        Args:
            sample_ids: `(batch,)` integers.
            view_ids: `(batch,)` integers; may be left out of a cache with one view.

        Raises:
            InputError: a row is not in the cache or not written; its (sample id, view id) is named.
        """
        return self.read_tensor("logits", sample_ids, view_ids)

    def read_tensor(self, name: str, sample_ids: Ids, view_ids: Ids | None = None) -> Float32[Tensor, "batch width"]:
        """The rows of one named tensor, like `read`."""
        if name not in self._buffers:
            raise InputError(
                f"{self.directory}: expected a tensor {', '.join(self._buffers)}, found {name!r} asked for"
            )
        return self._gather(name, self.locate(sample_ids, view_ids)).float()

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
            InputError: a row is missing, or no ids are given and a sample has several views.
        """
        if sample_ids is None:
            self._only_view(0)
            rows = self._written
        else:
            rows = self.locate(sample_ids, view_ids)

        def read(count: int) -> Iterator[Tensor]:
            for start in range(0, len(rows), count):
                block = rows[start : start + count]
                yield self._gather("logits", block)
                for shard in np.unique(block // self.manifest.shard_rows):
                    self._shards[shard].release()

        return ArrayFile(self.directory, (len(rows), self.recipe.num_classes), self._dtype, read)

    @property
    def _dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.recipe.dtype)
        return dtype

    def _only_view(self, count: int) -> Keys:
        if self.num_views != 1:
            raise InputError(f"{self.directory}: expected sample and view ids: every sample has {self.num_views} views")
        return np.repeat(self.view_ids[:1], count)

    def _gather(self, name: str, rows: Keys) -> Tensor:
        if not len(rows):
            return torch.empty(0, self.recipe.columns[name], dtype=self._dtype)
        buffers, width = self._buffers[name], self.recipe.columns[name] * self._dtype.itemsize
        shard, place = np.divmod(rows, self.manifest.shard_rows)
        start = place * width
        # Joining slices of bytes costs a third of indexing an array a shard, because a batch touches most shards.
        places = zip(shard.tolist(), start.tolist(), (start + width).tolist(), strict=True)
        joined = bytearray().join([buffers[index][first:last] for index, first, last in places])
        return torch.frombuffer(joined, dtype=self._dtype).view(len(rows), -1)


def open_cache(
    directory: str | Path, *, expected: CacheRecipe | None = None, check: bool = True, partial: bool = False
) -> TeacherCache:
    """Open a cache for reading; what does not match, is not finished or is damaged is refused here, by name.

    Args:
        directory: where `build_cache` wrote it.
        expected: what the caller would have computed; every field that differs is named.
        check: hash every shard (about a second a gigabyte), so that no flipped byte is ever read. Without it only
            sizes, headers and keys are looked at: for a second opening of a cache that was checked.
        partial: accept a cache whose build is not finished; its unwritten rows are refused when asked for.

    Example:
        >>> open_cache("/no/such/cache")
        Traceback (most recent call last):
            ...
        tpkd.files.InputError: /no/such/cache: expected a teacher cache, found no manifest.json
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
    return cache
