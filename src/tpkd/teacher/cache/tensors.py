"""Safetensors files whose size is known before their values: written in one pass, read through memory maps."""

import hashlib
import itertools
import json
import math
import mmap
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tpkd.errors import InputError
from tpkd.files import open_regular, open_safetensors, publish, reading, writing

MAX_HEADER_BYTES = 1 << 20
"""A file of a cache names a handful of tensors; a longer header was not written by tpkd and is not parsed."""

Layout = dict[str, tuple[np.dtype[Any], tuple[int, ...]]]
"""Name -> type and shape."""
Identity = tuple[int, ...]
"""Of a file: another one in its place has another."""

_NAMES = {
    "int64": "I64",
    "float32": "F32",
    "int32": "I32",
    "float16": "F16",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
"""In the order in which the library puts tensors of these types into a file."""


def tensor_bytes(layout: Layout) -> dict[str, int]:
    """How many bytes each tensor takes, in the order of the file: by type, then by name, as the library has them.

    Example:
        >>> small, large = np.dtype("uint8"), np.dtype("int64")
        >>> tensor_bytes({"b": (small, (3,)), "a": (small, (2, 2)), "c": (large, (1,))})
        {'c': 8, 'a': 4, 'b': 3}
    """
    order = list(_NAMES)
    names = sorted(layout, key=lambda name: (order.index(layout[name][0].name), name))
    return {name: layout[name][0].itemsize * math.prod(layout[name][1]) for name in names}


def header_bytes(layout: Layout) -> bytes:
    """The beginning of a file, up to its first value: the same bytes as the library writes.

    Example:
        >>> header_bytes({"x": (np.dtype("float16"), (2, 5))})[8:].rstrip()
        b'{"x":{"dtype":"F16","shape":[2,5],"data_offsets":[0,20]}}'
    """
    entries, end = {}, 0
    for name, size in tensor_bytes(layout).items():
        dtype, shape = layout[name]
        entries[name] = {"dtype": _NAMES[dtype.name], "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def tensor_places(layout: Layout) -> dict[str, int]:
    """Where in a file each tensor begins.

    Example:
        >>> tensor_places({"x": (np.dtype("float16"), (2, 5)), "y": (np.dtype("float16"), (3,))})
        {'x': 120, 'y': 140}
    """
    sizes, start = tensor_bytes(layout), len(header_bytes(layout))
    ends = itertools.accumulate(sizes.values(), initial=start)
    return dict(zip(sizes, ends, strict=False))


def file_bytes(layout: Layout) -> int:
    """How many bytes a file takes.

    Example:
        >>> file_bytes({"x": (np.dtype("float16"), (2, 5))})
        92
    """
    return len(header_bytes(layout)) + sum(tensor_bytes(layout).values())


def write_tensors(path: Path, arrays: Mapping[str, np.ndarray]) -> tuple[int, str]:
    """Publish a file without a second copy of its values in memory; returns its size in bytes and its SHA-256."""
    layout: Layout = {name: (array.dtype, array.shape) for name, array in arrays.items()}
    digest = hashlib.sha256()
    with writing(path), publish(path) as file:
        for part in _parts(layout, arrays):
            file.write(part)
            digest.update(part)
    return file_bytes(layout), digest.hexdigest()


def _parts(layout: Layout, arrays: Mapping[str, np.ndarray]) -> Iterator[bytes | memoryview]:
    yield header_bytes(layout)
    for name in tensor_bytes(layout):
        yield np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data


@dataclass(frozen=True, eq=False, slots=True)
class TensorFile:
    """A file that was looked at, and is mapped when it is read; a page is read when a row on it is."""

    path: Path
    layout: Layout
    offsets: dict[str, int]
    """Where in the file each tensor begins."""
    identity: Identity
    """Of the file that was looked at: another one in its place is refused."""

    def map(self) -> mmap.mmap:
        """The bytes of the file; the map stays open as long as something refers to it."""
        with open_regular(self.path) as file, reading(self.path):
            _check_identity(self.path, os.fstat(file.fileno()), self.identity)
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def array(self, pages: mmap.mmap | memoryview, name: str) -> np.ndarray:
        """A tensor of the mapped file."""
        dtype, shape = self.layout[name]
        return np.frombuffer(pages, dtype, math.prod(shape), self.offsets[name]).reshape(shape)


def identify(path: Path, size: int) -> Identity:
    """Which file goes by a path, without opening it; one that is missing or of another size is refused.

    Example:
        >>> identify(Path("/no/such/file"), 3)
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: /no/such/file: cannot be read: No such file or directory
    """
    try:
        status = os.stat(path)
    except OSError as error:
        with reading(path):
            raise error
    if not stat.S_ISREG(status.st_mode):
        open_regular(path).close()  # names what it is
    if status.st_size != size:
        raise InputError(f"{path}: expected {size} bytes, found {status.st_size}")
    return _identity(status)


def open_tensors(path: Path, layout: Layout, size: int, identity: Identity | None = None) -> TensorFile:
    """Look at a file: its size, tensor names, types and shapes are as expected.

    Args:
        path: the file.
        layout: the tensors that it must have, and no others.
        size: in bytes.
        identity: of the file that was there when the cache was opened.

    Raises:
        InputError: the file is missing, replaced, of another size, or holds other tensors.
    """
    with open_regular(path) as file, reading(path):
        status = os.fstat(file.fileno())
        if identity is not None:
            _check_identity(path, status, identity)
        if status.st_size != size:
            raise InputError(f"{path}: expected {size} bytes, found {status.st_size}")
        length = int.from_bytes(file.read(8), "little")
        if length > MAX_HEADER_BYTES:
            raise InputError(f"{path}: expected a header of at most {MAX_HEADER_BYTES} bytes, found {length}")
        text = file.read(length)
    with open_safetensors(path, "np"):  # the library checks that the tensors fill the file without gap or overlap
        offsets = _offsets(path, layout, json.loads(text))
    places = {name: 8 + length + offset for name, offset in offsets.items()}
    return TensorFile(path, layout, places, _identity(status))


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _check_identity(path: Path, status: os.stat_result, expected: Identity) -> None:
    if _identity(status) != expected:
        raise InputError(f"{path}: expected the file that was checked, found that it was replaced since")


def _offsets(path: Path, layout: Layout, header: dict[str, Any]) -> dict[str, int]:
    """Where each tensor of the layout begins, counted from the end of the header."""
    header.pop("__metadata__", None)
    found = {name: (entry["dtype"], tuple(entry["shape"])) for name, entry in header.items()}
    expected = {name: (_NAMES[dtype.name], shape) for name, (dtype, shape) in layout.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise InputError(
                f"{path}: tensor {name!r}: expected {_describe(expected.get(name))}, found {_describe(found.get(name))}"
            )
    return {name: header[name]["data_offsets"][0] for name in layout}


def _describe(entry: tuple[str, tuple[int, ...]] | None) -> str:
    return "none" if entry is None else f"{entry[0]} of shape {entry[1]}"
