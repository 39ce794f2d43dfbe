"""Arrays on disk, read in blocks of rows: `.npy`, `.npz` and `.safetensors`; never a pickle."""

import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from tpkd.files import InputError, file_size, open_regular, reading

ARRAY_SUFFIXES = (".npy", ".npz", ".safetensors")

_OpenStream = Callable[[], AbstractContextManager[IO[bytes]]]


@dataclass(frozen=True)
class ArrayFile:
    """One array on disk; its metadata are checked, its rows are not read yet."""

    path: Path
    shape: tuple[int, ...]
    dtype: torch.dtype
    _read: Callable[[int], Iterator[Tensor]] = field(repr=False)

    def blocks(self, rows: int) -> Iterator[Tensor]:
        """The rows in order, at most `rows` at a time, in the dtype of the file.

        Blocks are copied out of plain reads or short-lived maps: a standing map of a large file would count as memory.
        """
        if rows < 1:
            raise ValueError(f"rows: expected at least 1, got {rows}")
        yield from self._read(rows)


def open_array(path: str | Path, *, key: str = "logits") -> ArrayFile:
    """Open the array of a `.npy`, `.npz` or `.safetensors` file.

    Args:
        path: the file; its suffix names its format.
        key: which array to take where the file holds several; a file with a single array needs no name.

    Returns:
        The array's shape and dtype, and its rows in blocks.

    Raises:
        InputError: the file is missing, unreadable, damaged, pickled, or holds several arrays and none named `key`.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "logits.npy"
        >>> np.save(path, np.zeros((5, 3), dtype=np.float32))
        >>> array = open_array(path)
        >>> array.shape, [len(block) for block in array.blocks(2)]
        ((5, 3), [2, 2, 1])
    """
    path = Path(path)
    if path.is_dir() or path.suffix not in ARRAY_SUFFIXES:
        kind = "a directory" if path.is_dir() else f"the suffix {path.suffix!r}"
        raise InputError(f"{path}: expected a {', '.join(ARRAY_SUFFIXES)} file, found {kind}")
    openers = {".npy": _open_npy, ".npz": _open_npz, ".safetensors": _open_safetensors}
    with reading(path):
        return openers[path.suffix](path, key)


def _open_npy(path: Path, key: str) -> ArrayFile:
    return _numpy_array(path, lambda: open_regular(path), file_size(path), seekable=True)


def _open_npz(path: Path, key: str) -> ArrayFile:
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        member = f"{_choose_key(path, names, key)}.npy"
        size = archive.getinfo(member).file_size

    @contextmanager
    def open_member() -> Iterator[IO[bytes]]:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive, archive.open(member) as stream:
            yield stream

    return _numpy_array(path, open_member, size, seekable=False)


def _choose_key(path: Path, names: list[str], key: str) -> str:
    if key in names:
        return key
    if len(names) == 1:
        return names[0]
    found = ", ".join(sorted(names)) or "none"
    raise InputError(f"{path}: expected an array named {key!r} or a single array, found {found}")


def _numpy_array(path: Path, open_stream: _OpenStream, size: int, *, seekable: bool) -> ArrayFile:
    with open_stream() as stream:
        shape, fortran_order, dtype = _numpy_header(path, stream)
        offset = stream.tell()
    expected = offset + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if size != expected:
        raise InputError(f"{path}: expected {expected} bytes for shape {shape} of {dtype}, found {size}")
    if fortran_order and len(shape) > 1 and not seekable:
        raise InputError(f"{path}: expected rows in C order inside a .npz, found Fortran order; use ascontiguousarray")
    columns = shape[1:] if fortran_order and len(shape) > 1 else None

    def read(rows: int) -> Iterator[Tensor]:
        with reading(path), open_stream() as stream:
            stream.read(offset)
            for start in range(0, shape[0], rows):
                count = min(rows, shape[0] - start)
                if columns is None:
                    block = _read_numbers(stream, dtype, count * int(np.prod(shape[1:]))).reshape(count, *shape[1:])
                else:
                    block = _read_columns(stream, dtype, offset, shape, start, count)
                yield torch.from_numpy(block)

    return ArrayFile(path, shape, torch.from_numpy(np.empty(0, dtype.newbyteorder("="))).dtype, read)


def _numpy_header(path: Path, stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    version = np.lib.format.read_magic(stream)
    read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in read_header:
        raise InputError(f"{path}: expected .npy format 1.0 or 2.0, found {version[0]}.{version[1]}")
    shape, fortran_order, dtype = read_header[version](stream)
    if dtype.hasobject:
        raise InputError(f"{path}: expected numbers, found a pickled array; pickles run code and are refused")
    if dtype.kind not in "fiub" or dtype.itemsize > 8:
        raise InputError(f"{path}: expected real numbers of at most 64 bits, found dtype {dtype}")
    if not shape:
        raise InputError(f"{path}: expected an array with rows, found a single number")
    return shape, fortran_order, dtype


def _read_numbers(stream: IO[bytes], dtype: np.dtype[np.generic], count: int) -> np.ndarray:
    buffer = bytearray(count * dtype.itemsize)
    view, filled = memoryview(buffer), 0
    while filled < len(buffer):
        got = stream.readinto(view[filled:])  # type: ignore[attr-defined]
        if not got:
            raise EOFError(f"expected {len(buffer)} more bytes, found {filled}")
        filled += got
    return np.frombuffer(buffer, dtype).astype(dtype.newbyteorder("="), copy=False)


def _read_columns(
    stream: IO[bytes], dtype: np.dtype[np.generic], offset: int, shape: tuple[int, ...], start: int, count: int
) -> np.ndarray:
    width = int(np.prod(shape[1:]))
    block = np.empty((count, width), dtype.newbyteorder("="))
    for column in range(width):
        stream.seek(offset + (column * shape[0] + start) * dtype.itemsize)
        block[:, column] = _read_numbers(stream, dtype, count)
    return block.reshape(count, *shape[1:], order="F")


def _open_safetensors(path: Path, key: str) -> ArrayFile:
    from safetensors import safe_open

    file_size(path)  # the library opens the path itself, and would wait for a FIFO
    with safe_open(path, framework="pt") as archive:
        name = _choose_key(path, list(archive.keys()), key)
        shape = tuple(archive.get_slice(name).get_shape())
        if not shape:
            raise InputError(f"{path}: expected an array with rows, found a single number")
        dtype = archive.get_slice(name)[:0].dtype

    def read(rows: int) -> Iterator[Tensor]:
        for start in range(0, shape[0], rows):
            # Opened anew for every block, because pages of a map stay resident as long as the map stands.
            with reading(path), safe_open(path, framework="pt") as archive:
                block = archive.get_slice(name)[start : start + rows].clone()
            yield block

    return ArrayFile(path, shape, dtype, read)
