"""What a cache will take, from the number of its rows and what each row keeps, before anything runs."""

from dataclasses import dataclass

from tpkd.record import Record
from tpkd.teacher.cache.description import describe_kept
from tpkd.teacher.cache.index import index_layout
from tpkd.teacher.cache.manifest import binds_labels
from tpkd.teacher.cache.parts import Part
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.shards import SHARD_BYTES, row_bytes, rows_per_shard, shard_layout
from tpkd.teacher.cache.tensors import file_bytes, tensor_bytes

KEY_BYTES = 16
"""A sample and a view id, which a build holds for every row of the cache."""
LABEL_BYTES = 8
"""A label, which a build of a truncated cache holds as well."""


@dataclass(frozen=True)
class CacheEstimate(Record):
    """What a cache takes on disk, in memory, and of the time of its builders."""

    kept: str
    """Of each row, in words."""
    rows: int
    row_bytes: int
    shard_rows: int
    shards: int
    bytes: int
    """Of all shards, to the byte."""
    index_bytes: int
    """Of the file of the index, to the byte; 0 where the ids are in order and rows are found by arithmetic."""
    index_memory: int
    """Bytes that each process holds of it, the rest being read page by page."""
    build_memory: int
    """Bytes that each builder holds beside the model: the keys of all rows, and one shard."""
    workers: int
    largest_part: int
    """Rows of the worker that has most; parts are whole shards."""
    minutes: float | None
    """Until the last worker is done; None where their speed is not known."""

    @property
    def files(self) -> int:
        """Shards, manifest and journal, and the index if there is one."""
        return self.shards + 2 + (self.index_bytes > 0)


def estimate_cache(
    recipe: CacheRecipe,
    rows: int,
    *,
    views: int = 1,
    in_order: bool = True,
    workers: int = 1,
    rows_per_second: float | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> CacheEstimate:
    """What a cache of some rows takes.

    Args:
        recipe: what each row keeps.
        rows: samples times views.
        views: of each sample.
        in_order: whether sample ids follow each other, and views too, so that no file of an index is needed.
        workers: builders of a part each.
        rows_per_second: of one builder.
        shard_bytes: the most that a shard takes.

    Example:
        >>> found = estimate_cache(CacheRecipe("m", "d", {}, None, 100), 1_000_000, workers=4, rows_per_second=1000)
        >>> found.bytes, found.shards, found.files, found.largest_part, round(found.minutes, 1)
        (217019968, 64, 66, 250000, 4.2)
    """
    for name, value in (("rows", rows), ("views", views), ("workers", workers)):
        if value < 1:
            raise ValueError(f"{name}: expected at least 1, got {value}")
    shard_rows = rows_per_shard(recipe, rows, shard_bytes)
    shards = -(-rows // shard_rows)
    last = rows - (shards - 1) * shard_rows
    sizes = [file_bytes(shard_layout(recipe, count)) for count in (shard_rows, last)]
    index = index_layout(-(-rows // views), rows, views)
    parts = (Part(number, workers).shards(shards) for number in range(1, workers + 1))
    largest = max(min(part.stop * shard_rows, rows) - part.start * shard_rows for part in parts)
    labels = 0 if not binds_labels(recipe) else LABEL_BYTES * (1 if recipe.positions is None else recipe.positions + 1)
    return CacheEstimate(
        kept=describe_kept(recipe),
        rows=rows,
        row_bytes=row_bytes(recipe),
        shard_rows=shard_rows,
        shards=shards,
        bytes=(shards - 1) * sizes[0] + sizes[1],
        index_bytes=0 if in_order else file_bytes(index),
        index_memory=0 if in_order else tensor_bytes(index)["fences"],
        build_memory=rows * (KEY_BYTES + labels) + min(shard_rows, rows) * row_bytes(recipe),
        workers=workers,
        largest_part=largest,
        minutes=None if rows_per_second is None else largest / rows_per_second / 60,
    )
