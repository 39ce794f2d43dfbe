"""NumPy's own files: `.npy`, and the arrays of a `.npz`; never a pickle."""

import io
import math
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from tpkd.arrays.array_file import ArrayFile, TextFile, check_rows, choose_key
from tpkd.class_names import METADATA_KEY
from tpkd.errors import InputError
from tpkd.files import file_size, open_regular, reading

MAX_HEADER_BYTES = 1 << 16
"""Of a .npy file: NumPy writes 128."""
MAX_TEXT_BYTES = 1 << 16
"""Of one text in an array of texts, all of which take the room of the longest."""

MAX_CLASS_NAMES = 1 << 16

_OpenStream = Callable[[], AbstractContextManager[IO[bytes]]]


def npz_names(path: Path) -> tuple[str, ...]:
    """The names of the arrays of a `.npz`, sorted."""
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        return tuple(sorted(_member_names(archive)))


def open_numpy(path: Path, key: str) -> ArrayFile:
    """The array of a `.npy`, or one of a `.npz`, with the texts `class_names` beside it."""
    array = _numpy_array(path, *_stream_of(path, key), seekable=path.suffix == ".npy")
    return replace(array, class_names=_class_names(path)) if path.suffix == ".npz" else array


def _class_names(path: Path) -> tuple[str, ...] | None:
    if METADATA_KEY not in npz_names(path):
        return None
    texts = open_numpy_texts(path, METADATA_KEY)
    if texts is None or not 1 <= texts.rows <= MAX_CLASS_NAMES:
        found = "other values" if texts is None else texts.rows
        raise InputError(f"{path}: {METADATA_KEY}: expected 1 to {MAX_CLASS_NAMES} texts, found {found}")
    return tuple(next(texts.blocks(texts.rows)))


def open_numpy_texts(path: Path, key: str) -> TextFile | None:
    """The texts of a `.npy` or of an array of a `.npz`; None where it holds numbers."""
    open_stream, size = _stream_of(path, key)
    with open_stream() as stream:
        shape, _, dtype = _numpy_header(path, stream)
        offset = stream.tell()
    if dtype.kind != "U":
        return None
    if len(shape) != 1 or dtype.itemsize > MAX_TEXT_BYTES:
        most = f"of at most {MAX_TEXT_BYTES // 4} characters"
        raise InputError(f"{path}: expected one text {most} per row, found {dtype} of shape {shape}")
    _check_size(path, shape, dtype, offset, size)

    def read(rows: int) -> Iterator[list[str]]:
        with reading(path), open_stream() as stream:
            stream.read(offset)
            for start in range(0, shape[0], rows):
                yield _read_values(stream, dtype, min(rows, shape[0] - start)).tolist()

    return TextFile(path, shape[0], read)


def _stream_of(path: Path, key: str) -> tuple[_OpenStream, int]:
    """What opens the bytes of an array, and how many there are."""
    if path.suffix == ".npy":
        return lambda: open_regular(path), file_size(path)
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        names = [name for name in _member_names(archive) if name == key or name != METADATA_KEY]
        member = _member(path, archive, choose_key(path, names, key))

    @contextmanager
    def open_member() -> Iterator[IO[bytes]]:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive, archive.open(member.filename) as stream:
            yield stream

    return open_member, member.file_size


def _member_names(archive: zipfile.ZipFile) -> list[str]:
    return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


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


def _numpy_array(path: Path, open_stream: _OpenStream, size: int, *, seekable: bool) -> ArrayFile:
    with open_stream() as stream:
        shape, fortran_order, dtype = _numpy_header(path, stream)
        offset = stream.tell()
    if dtype.kind not in "fiub" or dtype.itemsize > 8:
        raise InputError(f"{path}: expected real numbers of at most 64 bits, found dtype {dtype}")
    check_rows(path, shape)
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
                    block = _read_values(stream, dtype, count * math.prod(shape[1:])).reshape(count, *shape[1:])
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
        raise InputError(
            f"{path}: expected numbers, found a pickled array; pickles run code and are refused; save "
            "texts with astype(str)"
        )
    return tuple(int(side) for side in shape), fortran_order, dtype


def _check_size(path: Path, shape: tuple[int, ...], dtype: np.dtype[np.generic], offset: int, size: int) -> None:
    expected = offset + math.prod(shape) * dtype.itemsize  # in Python integers, which do not wrap around
    if size != expected or min(shape, default=0) < 0:
        raise InputError(f"{path}: expected {expected} bytes for shape {shape} of {dtype}, found {size}")


def _read_values(stream: IO[bytes], dtype: np.dtype[np.generic], count: int) -> np.ndarray:
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
        block[:, column] = _read_values(stream, dtype, count)
    return block.reshape(count, *shape[1:], order="F")
