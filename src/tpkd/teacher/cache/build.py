"""Build a cache: every row through the model once, shard by shard, resumable after a kill at any instant."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tpkd.errors import InputError
from tpkd.lock import LOCK_NAME, locked
from tpkd.teacher.cache.manifest import MANIFEST_NAME, Manifest, ShardEntry, damaged_shards, read_manifest
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows
from tpkd.teacher.cache.shards import row_bytes, shard_layout, shard_name, write_shard
from tpkd.teacher.cache.store import store_rows

Forward = Callable[[Any], Mapping[str, Tensor]]
"""From inputs to `{"logits": (b, K), name: (b, width), …}`, the names those of the recipe."""


@dataclass(frozen=True)
class BuildProgress:
    """How far a build is; `seconds_left` follows the speed so far and is None before the first rows."""

    rows_done: int
    rows_total: int
    bytes_total: int
    seconds_left: float | None


def build_cache(
    directory: str | Path,
    rows: CacheRows,
    forward: Forward,
    recipe: CacheRecipe,
    *,
    shard_rows: int = 8192,
    block_rows: int = 64,
    model_source: str | None = None,
    on_progress: Callable[[BuildProgress], None] | None = None,
) -> None:
    """Write every row of a cache that is not written yet.

    A shard appears whole, then the manifest that names it; a build that was killed continues after the last named
    shard, so at most one is computed again, and ends with the same bytes as one that was not. A shard that is missing
    or damaged is recomputed. For a finished cache only the checksums are verified.

    Args:
        directory: new, empty, or a cache of the same recipe and rows.
        rows: the keys in order, and the inputs of any run of them; with `recipe.top_k` also their labels.
        forward: the model; called without gradient on runs of at most `block_rows` rows, each row once.
        recipe: what decides the values; a cache built from anything else is refused, not overwritten. With `top_k` a
            row keeps the largest classes of the logits, its label and the total of all others, see `truncate`.
        shard_rows: rows per file of a new cache; an existing cache keeps its own.
        block_rows: rows per forward pass.
        model_source: what the model was built from, as `model_source` sums it up; kept in the manifest, so
            that a reader can identify the model without building it.
        on_progress: called before the first forward (bytes known) and after each one (time known as well).

    Raises:
        InputError: the directory holds something else or is being written, the disk is full, or an output does not
            fit: its (sample id, view id) is named for a value that is not finite or beyond float16.
        ValueError: the recipe has `top_k`, and the rows have no labels or one that is not a class.

    Example:
        >>> import tempfile
        >>> from tpkd.teacher.cache import open_cache
        >>> rows = CacheRows.of_views(np.array([7, 8]), 1, lambda samples, views: torch.tensor(samples))
        >>> recipe = CacheRecipe("weights", "data", {}, None, 3)
        >>> directory = tempfile.mkdtemp()
        >>> build_cache(directory, rows, lambda x: {"logits": x[:, None] + torch.tensor([0.0, 0.5, 1.0])}, recipe)
        >>> open_cache(directory).read([8], [0])
        tensor([[1.0000, 1.5000, 2.0000]])
    """
    for name, value in (("shard_rows", shard_rows), ("block_rows", block_rows)):
        if value < 1:
            raise ValueError(f"{name}: expected at least 1, got {value}")
    directory = Path(directory)
    with locked(directory):
        manifest = _resume(directory, rows, recipe) or _begin(directory, rows, recipe, shard_rows)
        if model_source is not None and manifest.model_source != model_source:
            manifest = replace(manifest, model_source=model_source)
            manifest.publish(directory)
        damaged = damaged_shards(directory, manifest)
        pending = [index for index in range(manifest.num_shards) if index in damaged or index >= len(manifest.shards)]
        report = _Reporter(manifest, pending, on_progress)
        _check_space(directory, report.pending * row_bytes(recipe))
        _write_shards(directory, manifest, pending, rows, forward, block_rows, report)


def _resume(directory: Path, rows: CacheRows, recipe: CacheRecipe) -> Manifest | None:
    # Holding the lock: whatever is half written here belongs to a build that was killed.
    for partial in directory.glob(".*.partial"):
        partial.unlink()
    if not (directory / MANIFEST_NAME).exists():
        return None
    manifest = read_manifest(directory)
    differences = recipe.differences(manifest.recipe)
    fresh = Manifest.begin(rows, recipe, manifest.shard_rows)
    if not differences and fresh.keys_sha256 != manifest.keys_sha256:
        differences = [f"rows: expected keys {_summary(fresh)}, found {_summary(manifest)}"]
    if not differences and fresh.labels_sha256 != manifest.labels_sha256:
        differences = ["labels: expected those of the rows at hand, found others"]
    if differences:
        raise InputError(
            f"{directory}: holds another cache: {'; '.join(differences)}; take another directory, or remove this one"
        )
    return manifest


def _summary(manifest: Manifest) -> str:
    return f"{manifest.keys_sha256[:12]}… of {manifest.rows} rows"


def _begin(directory: Path, rows: CacheRows, recipe: CacheRecipe, shard_rows: int) -> Manifest:
    foreign = sorted(path.name for path in directory.iterdir() if path.name != LOCK_NAME)
    if foreign:
        raise InputError(f"{directory}: expected an empty directory or a teacher cache, found {foreign[0]}")
    manifest = Manifest.begin(rows, recipe, shard_rows)
    manifest.publish(directory)
    return manifest


def _check_space(directory: Path, needed: int) -> None:
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise InputError(f"{directory}: expected room for {needed / 1e6:.0f} MB more, found {free / 1e6:.0f} MB free")


def _write_shards(
    directory: Path,
    manifest: Manifest,
    pending: list[int],
    rows: CacheRows,
    forward: Forward,
    block_rows: int,
    report: "_Reporter",
) -> None:
    report.advance(0)
    arrays: dict[str, np.ndarray] = {}
    with _loader() as loader:
        for index, start, stop, inputs in _blocks_ahead(loader, manifest, pending, rows, block_rows):
            first, last = manifest.bounds(index)
            if start == first:
                layout = shard_layout(manifest.recipe, last - first)
                arrays = {name: np.zeros(shape, dtype) for name, (dtype, shape) in layout.items()}
            with torch.inference_mode():
                outputs = forward(inputs)
            store_rows(arrays, slice(start - first, stop - first), rows, slice(start, stop), outputs, manifest.recipe)
            report.advance(stop - start)
            if stop == last:
                assert arrays["written"].all()
                size, digest = write_shard(directory / shard_name(index), arrays)
                manifest = manifest.with_shard(index, ShardEntry(shard_name(index), last - first, size, digest))
                manifest.publish(directory)


def _blocks_ahead(
    loader: ThreadPoolExecutor, manifest: Manifest, pending: list[int], rows: CacheRows, block_rows: int
) -> Iterator[tuple[int, int, int, Any]]:
    """Shard, first row, end row and inputs of each block; the next block's inputs load while the model runs.

    A block never crosses a shard, so a resumed build forms the same blocks and computes the same bits.
    """
    blocks = [
        (index, start, min(start + block_rows, manifest.bounds(index)[1]))
        for index in pending
        for start in range(*manifest.bounds(index), block_rows)
    ]
    coming = [loader.submit(rows.inputs, start, stop) for _, start, stop in blocks[:1]]
    for position, block in enumerate(blocks):
        inputs = coming.pop().result()
        coming.extend(loader.submit(rows.inputs, *following[1:]) for following in blocks[position + 1 :][:1])
        yield *block, inputs


@contextmanager
def _loader() -> Iterator[ThreadPoolExecutor]:
    """One thread that prepares inputs, without helpers of its own where the model runs on the same cores.

    With a full set of its own, OpenMP would see more threads than cores and put them to sleep after every operation,
    which slows the model down by a sixth.
    """
    threads = torch.get_num_threads()
    own = threads if torch.accelerator.is_available() else 1
    try:
        with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(own,)) as loader:
            yield loader
    finally:
        torch.set_num_threads(threads)  # what one thread sets is the default of those that start later


class _Reporter:
    """Counts rows and says how long the rest takes at the speed so far."""

    def __init__(
        self, manifest: Manifest, pending: list[int], on_progress: Callable[[BuildProgress], None] | None
    ) -> None:
        self.pending = sum(stop - start for start, stop in map(manifest.bounds, pending))
        self._computed, self._started = 0, time.monotonic()
        self._manifest, self._on_progress = manifest, on_progress

    def advance(self, rows: int) -> None:
        self._computed += rows
        if self._on_progress is not None:
            elapsed, total, left = time.monotonic() - self._started, self._manifest.rows, self.pending - self._computed
            seconds = elapsed / self._computed * left if self._computed else None
            self._on_progress(BuildProgress(total - left, total, total * row_bytes(self._manifest.recipe), seconds))
