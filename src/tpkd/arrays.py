"""Arrays on disk, read in blocks of rows: `.npy`, `.npz` and `.safetensors`; never a pickle."""

import io
import math
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from tpkd.class_names import recorded_names
from tpkd.errors import InputError
from tpkd.files import file_size, open_regular, open_safetensors, reading

ARRAY_SUFFIXES = (".npy", ".npz", ".safetensors")
MAX_HEADER_BYTES = 1 << 16
"""Of a .npy file: NumPy writes 128."""

_OpenStream = Callable[[], AbstractContextManager[IO[bytes]]]


@dataclass(frozen=True)
class ArrayFile:
    """One array on disk, with checked metadata; rows are read on demand."""

    path: Path
    shape: tuple[int, ...]
    dtype: torch.dtype
    _read: Callable[[int], Iterator[Tensor]] = field(repr=False)
    class_names: tuple[str, ...] | None = field(default=None, repr=False)
    """Names of the columns, if the file has them."""

    def blocks(self, rows: int) -> Iterator[Tensor]:
        """The rows in order, at most `rows` at a time, in the dtype of the file.

        Blocks are copied from plain reads or short-lived maps: a permanent map of a large file would stay resident.
        """
        if rows < 1:
            raise ValueError(f"rows: expected at least 1, got {rows}")
        yield from self._read(rows)


def open_array(path: str | Path, *, key: str = "logits") -> ArrayFile:
    """Open the array of a `.npy`, `.npz` or `.safetensors` file.

    Args:
        path: the file; its suffix names its format.
        key: which array to read if the file has several; ignored if it has one.

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


def array_names(path: str | Path) -> tuple[str, ...]:
    """The names of the arrays in a `.npz` or `.safetensors` file, sorted; none for a `.npy` file.

    Raises:
        InputError: the file is missing, unreadable or damaged.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "teacher.npz"
        >>> np.savez(path, log_probs=np.zeros((2, 3)), indices=np.zeros((2, 3), int))
        >>> array_names(path)
        ('indices', 'log_probs')
    """
    path = Path(path)
    with reading(path):
        if path.suffix == ".safetensors":
            with open_safetensors(path) as archive:
                return tuple(sorted(archive.keys()))
        if path.suffix == ".npz":
            with open_regular(path) as file, zipfile.ZipFile(file) as archive:
                return tuple(sorted(_member_names(archive)))
    return ()


def _member_names(archive: zipfile.ZipFile) -> list[str]:
    return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def _open_npy(path: Path, key: str) -> ArrayFile:
    return _numpy_array(path, lambda: open_regular(path), file_size(path), seekable=True)


def _open_npz(path: Path, key: str) -> ArrayFile:
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        member = _member(path, archive, _choose_key(path, _member_names(archive), key))

    @contextmanager
    def open_member() -> Iterator[IO[bytes]]:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive, archive.open(member.filename) as stream:
            yield stream

    return _numpy_array(path, open_member, member.file_size, seekable=False)


def _member(path: Path, archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    member = archive.getinfo(f"{name}.npy")
    # What NumPy writes; other methods may need any amount of memory to unpack a few bytes.
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(f"{path}: {name}: expected no compression or deflate, found method {member.compress_type}")
    return member


def read_npz(path: str | Path, names: Sequence[str], *, limit: int) -> list[np.ndarray]:
    """Whole arrays of numbers or text out of a `.npz`, in the order of the names.

    Args:
        path: the archive.
        names: which arrays.
        limit: maximum unpacked bytes per array, enforced whatever size the archive claims.

    Raises:
        InputError: the file is missing or damaged, lacks an array, or holds a pickled or too large one.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "data.npz"
        >>> np.savez(path, labels=np.arange(3), names=np.array(["a", "b"]))
        >>> read_npz(path, ["names", "labels"], limit=1000)
        [array(['a', 'b'], dtype='<U1'), array([0, 1, 2])]
    """
    path = Path(path)
    with open_regular(path) as file, reading(path), zipfile.ZipFile(file) as archive:
        missing = [name for name in names if f"{name}.npy" not in archive.namelist()]
        if missing:
            raise InputError(f"{path}: expected the arrays {', '.join(names)}, found no {missing[0]}")
        arrays = []
        for name in names:
            with archive.open(_member(path, archive, name)) as stream:
                content = stream.read(limit + 1)
            if len(content) > limit:
                raise InputError(f"{path}: {name}: expected at most {limit} bytes, found more")
            arrays.append(_whole_array(path, content))
    return arrays


def _whole_array(path: Path, content: bytes) -> np.ndarray:
    stream = io.BytesIO(content)
    shape, fortran_order, dtype = _numpy_header(path, stream)
    _check_size(path, shape, dtype, stream.tell(), len(content))
    values = np.frombuffer(bytearray(content), dtype, math.prod(shape), stream.tell())
    return values.reshape(shape, order="F" if fortran_order else "C")


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
    if dtype.kind not in "fiub" or dtype.itemsize > 8:
        raise InputError(f"{path}: expected real numbers of at most 64 bits, found dtype {dtype}")
    _check_rows(path, shape)
    _check_size(path, shape, dtype, offset, size)
    if fortran_order and len(shape) > 1 and not seekable:
        raise InputError(f"{path}: expected rows in C order inside a .npz, found Fortran order; use ascontiguousarray")
    columns = shape[1:] if fortran_order and len(shape) > 1 else None

    def read(rows: int) -> Iterator[Tensor]:
        with reading(path), open_stream() as stream:
            stream.read(offset)
            for start in range(0, shape[0], rows):
                count = min(rows, shape[0] - start)
                if columns is None:
                    block = _read_numbers(stream, dtype, count * math.prod(shape[1:])).reshape(count, *shape[1:])
                else:
                    block = _read_columns(stream, dtype, offset, shape, start, count)
                yield torch.from_numpy(block)

    return ArrayFile(path, shape, torch.from_numpy(np.empty(0, dtype.newbyteorder("="))).dtype, read)


def _numpy_header(path: Path, stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Shape, order and dtype; the stream is left at the start of the data."""
    version = np.lib.format.read_magic(stream)
    parsers = {(1, 0): (2, np.lib.format.read_array_header_1_0), (2, 0): (4, np.lib.format.read_array_header_2_0)}
    if version not in parsers:
        raise InputError(f"{path}: expected .npy format 1.0 or 2.0, found {version[0]}.{version[1]}")
    width, parse = parsers[version]
    length = stream.read(width)
    count = int.from_bytes(length, "little")
    if count > MAX_HEADER_BYTES:
        raise InputError(f"{path}: expected a header of at most {MAX_HEADER_BYTES} bytes, found {count}")
    try:
        shape, fortran_order, dtype = parse(io.BytesIO(length + stream.read(count)))
    except Exception as error:  # a parser of Python literals: whatever it raises, the damaged bytes are the cause
        raise InputError(f"{path}: damaged: the header cannot be parsed ({type(error).__name__})") from error
    if dtype.hasobject:
        raise InputError(f"{path}: expected numbers, found a pickled array; pickles run code and are refused")
    return tuple(int(side) for side in shape), fortran_order, dtype


def _check_rows(path: Path, shape: tuple[int, ...]) -> None:
    if not shape:
        raise InputError(f"{path}: expected an array with rows, found a single number")
    if shape[0] < 0 or min(shape[1:], default=1) < 1:
        raise InputError(f"{path}: expected rows with at least one number each, found shape {shape}")


def _check_size(path: Path, shape: tuple[int, ...], dtype: np.dtype[np.generic], offset: int, size: int) -> None:
    expected = offset + math.prod(shape) * dtype.itemsize  # in Python integers, which do not wrap around
    if size != expected or min(shape, default=0) < 0:
        raise InputError(f"{path}: expected {expected} bytes for shape {shape} of {dtype}, found {size}")


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
    width = math.prod(shape[1:])
    block = np.empty((count, width), dtype.newbyteorder("="))
    for column in range(width):
        stream.seek(offset + (column * shape[0] + start) * dtype.itemsize)
        block[:, column] = _read_numbers(stream, dtype, count)
    return block.reshape(count, *shape[1:], order="F")


def _open_safetensors(path: Path, key: str) -> ArrayFile:
    with open_safetensors(path) as archive:
        name = _choose_key(path, list(archive.keys()), key)
        shape = tuple(archive.get_slice(name).get_shape())
        _check_rows(path, shape)
        dtype = archive.get_slice(name)[:0].dtype
    if dtype.is_complex:
        raise InputError(f"{path}: expected real numbers, found {str(dtype).removeprefix('torch.')}")

    def read(rows: int) -> Iterator[Tensor]:
        for start in range(0, shape[0], rows):
            # Reopened for every block, because the pages of a map stay resident while it is open.
            with open_safetensors(path) as archive:
                block = archive.get_slice(name)[start : start + rows].clone()
            yield block

    return ArrayFile(path, shape, dtype, read, recorded_names(path))
