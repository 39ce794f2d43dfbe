"""One shard of a cache: the rows that it holds, what they take, and what its file is called."""

import math
import re
from dataclasses import replace

import numpy as np

from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.tensors import Layout

SHARD_BYTES = 256 << 20
"""The most that a shard takes, unless one row takes more."""
MANY_SHARDS = 64
"""Into so many a cache is cut that would fit in fewer, so that parts of it can be built side by side …"""
FEW_ROWS = 8192
"""… but not into shards of fewer rows than this, or of fewer tokens where a row is a block of text."""

_SHARD_NAME = re.compile(r"shard-(\d{5,18})\.safetensors")


def shard_name(index: int) -> str:
    """The file name of a shard.

    Example:
        >>> shard_name(3)
        'shard-00003.safetensors'
    """
    return f"shard-{index:05d}.safetensors"


def shard_number(name: str) -> int | None:
    """The shard that a file name belongs to, None where it is not the name of a shard.

    Example:
        >>> shard_number("shard-00003.safetensors"), shard_number("shard-000003.safetensors")
        (3, None)
    """
    match = _SHARD_NAME.fullmatch(name)
    return int(match[1]) if match and shard_name(int(match[1])) == name else None


def shard_layout(recipe: CacheRecipe, rows: int) -> Layout:
    """The tensors of a shard: the keys of its rows, the bitmap of written rows, and the columns of the recipe.

    Example:
        >>> {name: shape for name, (_, shape) in shard_layout(CacheRecipe("m", "d", {}, None, 5), 2).items()}
        {'sample_ids': (2,), 'view_ids': (2,), 'written': (2,), 'logits': (2, 5)}
    """
    keys = dict.fromkeys(("sample_ids", "view_ids"), (np.dtype(np.int64), (rows,)))
    values = {name: (np.dtype(column.dtype), column.shape(rows)) for name, column in recipe.columns.items()}
    return {**keys, "written": (np.dtype(np.bool_), (rows,)), **values}


def row_bytes(recipe: CacheRecipe) -> int:
    """How many bytes of a shard one row takes.

    Example:
        >>> row_bytes(CacheRecipe("m", "d", {}, None, 100))
        217
    """
    return sum(dtype.itemsize * math.prod(shape) for dtype, shape in shard_layout(recipe, 1).values())


def full_row_bytes(recipe: CacheRecipe) -> int:
    """How many bytes a row would take with all logits in float16.

    Example:
        >>> full_row_bytes(CacheRecipe("m", "d", {}, None, 100, top_k=5))
        217
    """
    return row_bytes(replace(recipe, top_k=None, top_p=None, dtype="float16"))


def rows_per_shard(recipe: CacheRecipe, rows: int, shard_bytes: int = SHARD_BYTES) -> int:
    """How many rows a shard of a new cache holds; the last one may hold fewer.

    It depends on nothing but the recipe and the number of rows, so whoever builds a part of a cache cuts it alike.

    Example:
        >>> recipe = CacheRecipe("m", "d", {}, None, 100)
        >>> [rows_per_shard(recipe, rows) for rows in (1000, 1_000_000, 100_000_000)]
        [8192, 15625, 1237029]
        >>> rows_per_shard(recipe, 1_000_000, shard_bytes=1 << 20)
        4832
    """
    most = max(1, shard_bytes // row_bytes(recipe))
    return min(most, max(recipe.rows_of(FEW_ROWS), -(-rows // MANY_SHARDS)))
