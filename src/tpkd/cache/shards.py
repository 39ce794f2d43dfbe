"""One shard of a cache: a safetensors file, published whole and read through a memory map."""

import hashlib
import json
import math
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpkd.cache.recipe import CacheRecipe
from tpkd.files import InputError, publish_bytes, reading

MAX_HEADER_BYTES = 1 << 20
"""A shard names a handful of tensors; a longer header is not ours, and is not worth parsing."""

Layout = dict[str, tuple[np.dtype[Any], tuple[int, ...]]]

_SAFETENSORS_NAMES = {"int64": "I64", "bool": "BOOL", "float16": "F16", "float32": "F32"}


@dataclass(frozen=True, eq=False)
class Shard:
    """The mapped tensors of one file; a page is read when a row on it is."""

    arrays: dict[str, np.ndarray]
    _pages: mmap.mmap

    def release(self) -> None:
        """Give the pages read so far back to the system, so that a pass over a large cache stays small."""
        if hasattr(self._pages, "madvise"):
            self._pages.madvise(mmap.MADV_DONTNEED)


def shard_name(index: int) -> str:
    """The file name of a shard.

    Example:
        >>> shard_name(3)
        'shard-00003.safetensors'
    """
    return f"shard-{index:05d}.safetensors"


def shard_layout(recipe: CacheRecipe, rows: int) -> Layout:
    """The tensors of a shard: the keys of its rows, the bitmap of written rows, the logits and what else a row carries.

    Example:
        >>> {name: shape for name, (_, shape) in shard_layout(CacheRecipe("m", "d", {}, None, 5), 2).items()}
        {'sample_ids': (2,), 'view_ids': (2,), 'written': (2,), 'logits': (2, 5)}
    """
    keys = dict.fromkeys(("sample_ids", "view_ids"), (np.dtype(np.int64), (rows,)))
    values = {name: (np.dtype(recipe.dtype), (rows, width)) for name, width in recipe.columns.items()}
    return {**keys, "written": (np.dtype(np.bool_), (rows,)), **values}


def row_bytes(recipe: CacheRecipe) -> int:
    """How many bytes of a shard one row takes.

    Example:
        >>> row_bytes(CacheRecipe("m", "d", {}, None, 100))
        217
    """
    return sum(dtype.itemsize * math.prod(shape) for dtype, shape in shard_layout(recipe, 1).values())


def write_shard(path: Path, arrays: dict[str, np.ndarray]) -> tuple[int, str]:
    """Publish a shard; returns its size in bytes and its SHA-256."""
    from safetensors.numpy import save

    data = save(arrays)
    publish_bytes(path, data)
    return len(data), hashlib.sha256(data).hexdigest()


def open_shard(path: Path, recipe: CacheRecipe, rows: int, size: int) -> Shard:
    """Map a shard whose size, tensor names, dtypes and shapes are as its manifest promises.

    Raises:
        InputError: the file is missing, of another size, or holds other tensors.
    """
    with reading(path):
        found = path.stat().st_size
        if found != size:
            raise InputError(f"{path}: expected {size} bytes, found {found}")
        layout = shard_layout(recipe, rows)
        offsets = _read_offsets(path, layout)
        with path.open("rb") as file:
            pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        arrays = {
            name: np.frombuffer(pages, dtype, math.prod(shape), offsets[name]).reshape(shape)
            for name, (dtype, shape) in layout.items()
        }
    return Shard(arrays, pages)


def _read_offsets(path: Path, layout: Layout) -> dict[str, int]:
    """Where in the file each tensor of the layout begins."""
    from safetensors import safe_open

    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > MAX_HEADER_BYTES:
            raise InputError(f"{path}: expected a header of at most {MAX_HEADER_BYTES} bytes, found {length}")
        text = file.read(length)
    with safe_open(path, framework="np"):  # the library checks that the tensors fill the file without gap or overlap
        header = json.loads(text)
    header.pop("__metadata__", None)
    found = {name: (entry["dtype"], tuple(entry["shape"])) for name, entry in header.items()}
    expected = {name: (_SAFETENSORS_NAMES[dtype.name], shape) for name, (dtype, shape) in layout.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise InputError(
                f"{path}: tensor {name!r}: expected {_describe(expected.get(name))}, found {_describe(found.get(name))}"
            )
    return {name: 8 + length + header[name]["data_offsets"][0] for name in layout}


def _describe(entry: tuple[str, tuple[int, ...]] | None) -> str:
    return "none" if entry is None else f"{entry[0]} of shape {entry[1]}"
