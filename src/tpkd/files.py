"""Files in and out: arrays read in blocks of rows, results published by rename, hashes; never a pickle."""

import difflib
import errno
import hashlib
import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

import numpy as np
import torch
from torch import Tensor

ARRAY_SUFFIXES = (".npy", ".npz", ".safetensors")

_OpenStream = Callable[[], AbstractContextManager[IO[bytes]]]


class InputError(ValueError):
    """What the user handed in is wrong; the message is one line that names the file and what was expected."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the closest known one, if any is close.

    Example:
        >>> did_you_mean("tkpd", ["ce", "kd", "tpkd"])
        '; did you mean tpkd?'
        >>> did_you_mean("quantum", ["ce", "kd", "tpkd"])
        ''
    """
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Turn the absence of an optional library into one line that names the extra to install.

    Example:
        >>> with extra("train"):
        ...     import no_such_library
        Traceback (most recent call last):
            ...
        tpkd.files.InputError: no_such_library is not installed: pip install 'tpkd[train]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is not installed: pip install 'tpkd[{name}]'") from error


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


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Turn whatever a missing or damaged file raises into one line that names it."""
    from safetensors import SafetensorError

    try:
        yield
    except InputError:
        raise
    except FileNotFoundError as error:  # safetensors raises it without a number, the path in its words
        raise InputError(f"{path}: cannot be read: {os.strerror(errno.ENOENT)}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, SafetensorError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: damaged or not what its suffix says: {reason}") from error


def _open_npy(path: Path, key: str) -> ArrayFile:
    return _numpy_array(path, lambda: path.open("rb"), path.stat().st_size, seekable=True)


def _open_npz(path: Path, key: str) -> ArrayFile:
    with zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        member = f"{_choose_key(path, names, key)}.npy"
        size = archive.getinfo(member).file_size

    @contextmanager
    def open_member() -> Iterator[IO[bytes]]:
        with zipfile.ZipFile(path) as archive, archive.open(member) as stream:
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


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a UTF-8 text file without their ends, one at a time.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "names.txt"
        >>> _ = path.write_text("cat\\ndog\\n")
        >>> list(read_lines(path))
        ['cat', 'dog']
    """
    with reading(path), Path(path).open(encoding="utf-8-sig") as lines:
        for line in lines:
            yield line.rstrip("\r\n")


@contextmanager
def publish(path: str | Path) -> Iterator[IO[bytes]]:
    """Write a file that appears whole or not at all: a temporary neighbour, flushed to disk, then renamed.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "result.json"
        >>> with publish(path) as file:
        ...     _ = file.write(b"{}")
        >>> path.read_bytes()
        b'{}'
    """
    path = Path(path)
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", suffix=".partial", delete=False) as temporary:
        try:
            yield temporary
            temporary.flush()
            os.fsync(temporary.fileno())
            # A temporary file is private; what we publish has the permissions of any new file.
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary.name, 0o666 & ~umask)
            os.replace(temporary.name, path)
        except BaseException:
            os.unlink(temporary.name)
            raise
    sync_directory(path.parent)


def publish_bytes(path: str | Path, data: bytes) -> None:
    """Publish a whole file, its directory made if need be; a disk that refuses it is said in one line with the path.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "new" / "result.json"
        >>> publish_bytes(path, b"{}")
        >>> path.read_bytes()
        b'{}'
    """
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with publish(path) as file:
            file.write(data)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def sync_directory(directory: Path) -> None:
    """Flush a directory to disk, so that a rename in it outlasts a power cut."""
    if os.name != "posix":  # elsewhere a directory cannot be opened, and the rename alone has to do
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: str | Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "empty"
        >>> path.touch()
        >>> sha256(path)[:16]
        'e3b0c44298fc1c14'
    """
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
