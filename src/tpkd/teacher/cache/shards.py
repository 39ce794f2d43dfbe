"""One shard of a cache: a safetensors file, published whole and read through a memory map."""

import hashlib
import json
import math
import mmap
import os
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np

from tpkd.errors import InputError
from tpkd.files import open_regular, open_safetensors, reading, write_file
from tpkd.teacher.cache.recipe import CacheRecipe

MAX_HEADER_BYTES = 1 << 20
"""A shard names a handful of tensors; a longer header was not written by tpkd and is not parsed."""
MAX_MAPS = 1024
"""Shards that are mapped at a time, where a process may have that many files open."""

Layout = dict[str, tuple[np.dtype[Any], tuple[int, ...]]]

_SAFETENSORS_NAMES = {
    "bool": "BOOL",
    "uint8": "U8",
    "uint16": "U16",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "float32": "F32",
}


@dataclass(frozen=True, eq=False)
class ShardFile:
    """A shard that was looked at, and is mapped when it is read; a page is read when a row on it is."""

    path: Path
    layout: Layout
    offsets: dict[str, int]
    """Where in the file each tensor begins."""
    identity: tuple[int, ...]
    """Of the file that was looked at: another one in its place is refused."""

    def map(self) -> mmap.mmap:
        """The bytes of the file; the map stays open as long as something refers to it."""
        with open_regular(self.path) as file, reading(self.path):
            if _identity(file) != self.identity:
                raise InputError(f"{self.path}: expected the file that was checked, found that it was replaced since")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def array(self, pages: mmap.mmap, name: str) -> np.ndarray:
        """A tensor of the mapped file."""
        dtype, shape = self.layout[name]
        return np.frombuffer(pages, dtype, math.prod(shape), self.offsets[name]).reshape(shape)


def release(pages: memoryview) -> None:
    """Give the pages of a map that were read back to the system, so that a pass over a large cache stays small."""
    if isinstance(pages.obj, mmap.mmap) and hasattr(pages.obj, "madvise"):
        pages.obj.madvise(mmap.MADV_DONTNEED)


def standing_maps() -> int:
    """How many shards of a cache may be mapped at a time: each takes one of the files that a process may have open.

    A quarter of these, because there may be a second cache, and because data loaders need files as well.

    Example:
        >>> 1 <= standing_maps() <= MAX_MAPS
        True
    """
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return MAX_MAPS
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MAX_MAPS if limit == resource.RLIM_INFINITY else max(1, min(MAX_MAPS, limit // 4))


def shard_name(index: int) -> str:
    """The file name of a shard.

    Example:
        >>> shard_name(3)
        'shard-00003.safetensors'
    """
    return f"shard-{index:05d}.safetensors"


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
    return row_bytes(replace(recipe, top_k=None, dtype="float16"))


def write_shard(path: Path, arrays: dict[str, np.ndarray]) -> tuple[int, str]:
    """Publish a shard; returns its size in bytes and its SHA-256."""
    from safetensors.numpy import save

    data = save(arrays)
    write_file(path, data)
    return len(data), hashlib.sha256(data).hexdigest()


def open_shard(path: Path, recipe: CacheRecipe, rows: int, size: int) -> ShardFile:
    """Look at a shard: its size, tensor names, dtypes and shapes are as its manifest promises.

    Raises:
        InputError: the file is missing, of another size, or holds other tensors.
    """
    layout = shard_layout(recipe, rows)
    with open_regular(path) as file, reading(path):
        identity = _identity(file)
        found = os.fstat(file.fileno()).st_size
        if found != size:
            raise InputError(f"{path}: expected {size} bytes, found {found}")
        length = int.from_bytes(file.read(8), "little")
        if length > MAX_HEADER_BYTES:
            raise InputError(f"{path}: expected a header of at most {MAX_HEADER_BYTES} bytes, found {length}")
        text = file.read(length)
    with open_safetensors(path, "np"):  # the library checks that the tensors fill the file without gap or overlap
        offsets = _offsets(path, layout, json.loads(text))
    return ShardFile(path, layout, {name: 8 + length + offset for name, offset in offsets.items()}, identity)


def _identity(file: BufferedReader) -> tuple[int, ...]:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _offsets(path: Path, layout: Layout, header: dict[str, Any]) -> dict[str, int]:
    """Where each tensor of the layout begins, counted from the end of the header."""
    header.pop("__metadata__", None)
    found = {name: (entry["dtype"], tuple(entry["shape"])) for name, entry in header.items()}
    expected = {name: (_SAFETENSORS_NAMES[dtype.name], shape) for name, (dtype, shape) in layout.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise InputError(
                f"{path}: tensor {name!r}: expected {_describe(expected.get(name))}, found {_describe(found.get(name))}"
            )
    return {name: header[name]["data_offsets"][0] for name in layout}


def _describe(entry: tuple[str, tuple[int, ...]] | None) -> str:
    return "none" if entry is None else f"{entry[0]} of shape {entry[1]}"
