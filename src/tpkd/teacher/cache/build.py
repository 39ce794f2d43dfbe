"""Build a cache: every row through the model once, shard by shard, resumable after a kill at any instant."""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tpkd.errors import InputError
from tpkd.teacher.cache.assembly import assembling
from tpkd.teacher.cache.draft import DRAFT_ROWS, Draft, discard_drafts
from tpkd.teacher.cache.entries import ShardEntry
from tpkd.teacher.cache.manifest import MANIFEST_NAME, Manifest
from tpkd.teacher.cache.parts import Part
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows
from tpkd.teacher.cache.shards import SHARD_BYTES, row_bytes, rows_per_shard, shard_layout, shard_name
from tpkd.teacher.cache.store import store_rows
from tpkd.teacher.cache.tensors import write_tensors

Forward = Callable[[Any], Mapping[str, Tensor]]
"""From inputs to `{"logits": (b, K), name: (b, width), …}`, the names those of the recipe; with positions, which stand
behind b, where a row is a block of text."""


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
    part: Part | None = None,
    shard_bytes: int = SHARD_BYTES,
    shard_rows: int | None = None,
    block_rows: int = 64,
    model_source: str | None = None,
    on_progress: Callable[[BuildProgress], None] | None = None,
) -> None:
    """Write every row of a cache that is not written yet.

    A shard appears whole, then the line of the journal that names it. A build that was killed continues where it was,
    at most 8,192 rows and a forward pass before, and ends with the same bytes as one that was not. A shard that is
    missing or damaged is recomputed. For a finished cache only the checksums are verified.

    Args:
        directory: new, empty, or a cache of the same recipe and rows.
        rows: the keys in order, and the inputs of any run of them; with `recipe.top_k` also their labels.
        forward: the model; called without gradient on runs of at most `block_rows` rows, each row once.
        recipe: what decides the values; a cache built from anything else is refused, not overwritten. With `top_k` a
            row keeps the largest classes of the logits, its label and the total of all others, see `truncate`.
        part: build this part of the cache alone, as a directory that `merge_parts` takes; `rows` are still all rows.
        shard_bytes: the most that a file of a new cache takes; an existing cache keeps its own size.
        shard_rows: rows per file of a new cache, instead of what `rows_per_shard` makes of `shard_bytes`.
        block_rows: rows per forward pass.
        model_source: what the model was built from, as `model_source` sums it up; kept in the manifest, so
            that a reader can identify the model without building it.
        on_progress: called before the first forward (bytes known) and after each one (time known as well).

    Raises:
        InputError: the directory holds something else or is being written, the disk is full, there are more parts than
            shards, or an output does not fit: its (sample id, view id) is named for a value that is not finite or
            beyond float16.
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
    for name, value in (("shard_bytes", shard_bytes), ("shard_rows", shard_rows), ("block_rows", block_rows)):
        if value is not None and value < 1:
            raise ValueError(f"{name}: expected at least 1, got {value}")
    directory = Path(directory)
    cut = shard_rows or rows_per_shard(recipe, len(rows), shard_bytes)
    if part is not None and not (directory / MANIFEST_NAME).exists():
        _check_part(part, len(rows), recipe, cut)

    def begin(rows_of_existing: int | None) -> Manifest:
        return replace(Manifest.begin(rows, recipe, rows_of_existing or cut, part), model_source=model_source)

    with assembling(directory, begin, partial(_with_keys, rows)) as cache:
        manifest, pending = cache.manifest, cache.pending
        discard_drafts(directory, keep=set(pending))
        restored = {index: _restorable(directory, manifest, index) for index in pending}
        report = _Reporter(manifest, pending, sum(restored.values()), on_progress)
        _check_space(directory, report.pending * row_bytes(recipe))
        for index, entry in _compute(directory, manifest, restored, rows, forward, block_rows, report):
            cache.record(index, entry)
        cache.finish()


def _with_keys(rows: CacheRows, manifest: Manifest, index: int, entry: ShardEntry) -> ShardEntry:
    shard = slice(*manifest.bounds(index))
    return entry.with_keys(rows.sample_ids[shard], rows.view_ids[shard], manifest.views)


def _check_part(part: Part, rows: int, recipe: CacheRecipe, shard_rows: int) -> None:
    shards = -(-rows // shard_rows)
    if part.total > shards:
        raise InputError(
            f"part: expected I/N with N at most {shards}, the number of shards, found {part.number}/{part.total}; "
            f"smaller shards allow more parts: --shard-bytes {max(1, rows * row_bytes(recipe) // part.total)}"
        )


def _check_space(directory: Path, needed: int) -> None:
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise InputError(f"{directory}: expected room for {needed / 1e6:.0f} MB more, found {free / 1e6:.0f} MB free")


def _empty_shard(manifest: Manifest, index: int) -> dict[str, np.ndarray]:
    first, last = manifest.bounds(index)
    layout = shard_layout(manifest.recipe, last - first)
    return {name: np.zeros(shape, dtype) for name, (dtype, shape) in layout.items()}


def _restorable(directory: Path, manifest: Manifest, index: int) -> int:
    """How many rows of a shard were computed before the build was stopped."""
    draft, arrays = Draft(directory, index), _empty_shard(manifest, index)
    rows = draft.restore(arrays)
    if rows == len(arrays["written"]):  # no build writes the last rows of a shard to its draft
        draft.discard()
        return 0
    return rows


def _compute(
    directory: Path,
    manifest: Manifest,
    restored: dict[int, int],
    rows: CacheRows,
    forward: Forward,
    block_rows: int,
    report: "_Reporter",
) -> Iterator[tuple[int, ShardEntry]]:
    """Compute shards, of each the rows that could not be restored; a shard is on disk when it is given out."""
    report.advance(0)
    arrays: dict[str, np.ndarray] = {}
    draft, drafted = None, 0
    with _loader() as loader:
        for index, start, stop, inputs in _inputs_ahead(loader, _blocks(manifest, restored, block_rows), rows):
            first, last = manifest.bounds(index)
            if draft is None:
                arrays, draft = _empty_shard(manifest, index), Draft(directory, index)
                drafted = draft.restore(arrays)
            with torch.inference_mode():
                outputs = forward(inputs)
            store_rows(arrays, slice(start - first, stop - first), rows, slice(start, stop), outputs, manifest.recipe)
            report.advance(stop - start)
            if stop == last:
                assert arrays["written"].all()
                size, digest = write_tensors(directory / shard_name(index), arrays)
                entry = ShardEntry(shard_name(index), last - first, size, digest)
                yield index, _with_keys(rows, manifest, index, entry)
                draft.discard()
                draft = None
            elif stop - first - drafted >= manifest.recipe.rows_of(DRAFT_ROWS):
                draft.append(arrays, drafted, stop - first)
                drafted = stop - first


def _blocks(manifest: Manifest, restored: dict[int, int], block_rows: int) -> Iterator[tuple[int, int, int]]:
    """Shard, first row and end row of each block.

    A block never crosses a shard, so a resumed build forms the same blocks and computes the same bits.
    """
    for index, done in restored.items():
        first, last = manifest.bounds(index)
        for start in range(first + done, last, block_rows):
            yield index, start, min(start + block_rows, last)


def _inputs_ahead(
    loader: ThreadPoolExecutor, blocks: Iterator[tuple[int, int, int]], rows: CacheRows
) -> Iterator[tuple[int, int, int, Any]]:
    """Each block with its inputs; those of the next block load while the model runs."""
    block = next(blocks, None)
    coming = None if block is None else loader.submit(rows.inputs, *block[1:])
    while block is not None and coming is not None:
        present, inputs = block, coming.result()
        block = next(blocks, None)
        coming = None if block is None else loader.submit(rows.inputs, *block[1:])
        yield *present, inputs


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
        self,
        manifest: Manifest,
        pending: list[int],
        restored: int,
        on_progress: Callable[[BuildProgress], None] | None,
    ) -> None:
        self.pending = sum(stop - start for start, stop in map(manifest.bounds, pending)) - restored
        self._computed, self._started = 0, time.monotonic()
        self._total, self._row_bytes = len(manifest.row_numbers), row_bytes(manifest.recipe)
        self._on_progress = on_progress

    def advance(self, rows: int) -> None:
        self._computed += rows
        if self._on_progress is not None:
            elapsed, left = time.monotonic() - self._started, self.pending - self._computed
            seconds = elapsed / self._computed * left if self._computed else None
            self._on_progress(BuildProgress(self._total - left, self._total, self._total * self._row_bytes, seconds))
