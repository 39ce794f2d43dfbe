"""Files in and out: bounded reads of regular files, results published by rename, hashes.

Every file from outside is opened by `open_regular`, which accepts regular files only, through links or not. A FIFO
would block the program and a device would never end.
"""

import errno
import hashlib
import io
import itertools
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, TypeVar

from tpkd.errors import InputError, reason, shortened

MAX_TEXT_BYTES = 64 << 20
"""What a config, a record or a list of names may have; callers that need more pass a limit."""
MAX_SAFETENSORS_HEADER_BYTES = 16 << 20
"""Room for some hundred thousand tensors."""
MAX_LINE_LENGTH = 16 << 20
"""Characters of one line of a table, so that a file without line ends is refused instead of held in memory."""

Parsed = TypeVar("Parsed")

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


def check_path(text: str) -> str:
    """The text of a path, refused where no disk of this machine can have it.

    Read as a path, `s3://bucket/x` would be a local folder named `s3:`, and results would silently go there.

    Raises:
        InputError: a URL, nothing at all, a NUL, or something that is not text.

    Example:
        >>> check_path("runs/x #2")
        'runs/x #2'
        >>> check_path("s3://x")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: expected a path on this machine, found 's3://x'; s3:// is not supported: ...
    """
    scheme = _SCHEME.match(text)
    if scheme:
        way_out = f"{scheme[0]} is not supported: copy or mount it"
        raise InputError(f"expected a path on this machine, found {shortened(text)!r}; {way_out}")
    if not text or "\0" in text:
        raise InputError(f"expected a path on this machine, found {shortened(text)!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(f"expected a path on this machine in UTF-8, found {shortened(text)!r}") from None
    return text


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
        raise InputError(f"{path}: damaged or not what its suffix says: {reason(error)}") from error


@contextmanager
def writing(path: str | Path, done: str = "written") -> Iterator[None]:
    """Turn whatever a disk or directory refuses into one line that names the path and what could not be done to it.

    Example:
        >>> with writing("/proc/x"):
        ...     open("/proc/x", "w")
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: /proc/x: cannot be written: No such file or directory
    """
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be {done}: {error.strerror or error}") from error


def open_regular(path: str | Path) -> io.BufferedReader:
    """Open a regular file for reading, links followed; anything else is refused by its kind, without waiting for it.

    The check looks at what was opened, so nothing can take its place in between.

    Raises:
        InputError: there is no such file, it may not be read, or it is a directory, FIFO, socket or device.

    Example:
        >>> open_regular("/dev/null")
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: /dev/null: expected a regular file, found a device
    """
    # A FIFO opened without O_NONBLOCK waits for its writer; for a regular file the flag means nothing.
    flags = os.O_RDONLY
    for name in ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY"):
        flags |= getattr(os, name, 0)
    with reading(path):
        try:
            descriptor = os.open(path, flags)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a socket has a name, but opens in another way
                raise InputError(f"{path}: expected a regular file, found {_kind(os.stat(path).st_mode)}") from error
            raise
        except ValueError as error:  # a NUL, or a character that no path has
            raise InputError(f"{str(path)!r}: expected a path, found {error}") from error
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            raise InputError(f"{path}: expected a regular file, found {_kind(mode)}")
        return os.fdopen(descriptor, "rb")


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def file_size(path: str | Path) -> int:
    """The size of a regular file, for libraries that open a path themselves; anything else is refused.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "three"
        >>> _ = path.write_bytes(b"abc")
        >>> file_size(path)
        3
    """
    with open_regular(path) as file:
        return os.fstat(file.fileno()).st_size


@contextmanager
def open_safetensors(path: str | Path, framework: str = "pt") -> Iterator[Any]:
    """Open a safetensors file with its library, after looking at what the library does not: kind of file and header.

    Raises:
        InputError: the file is missing, not a regular file, or damaged; also what goes wrong inside the `with`.

    Example:
        >>> import tempfile, numpy
        >>> from safetensors.numpy import save_file
        >>> path = Path(tempfile.mkdtemp()) / "weights.safetensors"
        >>> save_file({"bias": numpy.zeros(3)}, path)
        >>> with open_safetensors(path) as archive:
        ...     list(archive.keys())
        ['bias']
    """
    from safetensors import safe_open

    with open_regular(path) as file, reading(path):  # the library opens the path itself, and would wait for a FIFO
        length = int.from_bytes(file.read(8), "little")
    if length > MAX_SAFETENSORS_HEADER_BYTES:
        raise InputError(
            f"{path}: expected a header of at most {MAX_SAFETENSORS_HEADER_BYTES} bytes, found {length}; "
            "damaged or not what its suffix says"
        )
    with reading(path), safe_open(path, framework=framework) as archive:
        yield archive


def read_bounded(path: str | Path, limit: int = MAX_TEXT_BYTES) -> bytes:
    """The whole of a regular file, refused where it has more than `limit` bytes, even if it grows while it is read.

    Raises:
        InputError: the file is missing, not a regular file, or too long.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "four"
        >>> _ = path.write_bytes(b"abcd")
        >>> read_bounded(path, 4)
        b'abcd'
        >>> read_bounded(path, 3)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: ...: expected at most 3 bytes, found more
    """
    with open_regular(path) as file, reading(path):
        # The size spares reading a file that is too long; a file that grows or hides its size is caught by its bytes.
        if os.fstat(file.fileno()).st_size > limit or len(data := file.read(limit + 1)) > limit:
            raise InputError(f"{path}: expected at most {limit} bytes, found more")
    return data


def read_text(path: str | Path, limit: int = MAX_TEXT_BYTES, *, encoding: str = "utf-8") -> str:
    """The whole of a text file, read by `read_bounded`.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "name.txt"
        >>> _ = path.write_bytes(b"caf\\xc3\\xa9")
        >>> len(read_text(path))
        4
    """
    data = read_bounded(path, limit)
    with reading(path):
        return data.decode(encoding)


def read_parsed(path: Path, parse: Callable[[str], Parsed]) -> Parsed | None:
    """What a text file says, None where there is none; what is wrong with it is said with its name.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "number.txt"
        >>> read_parsed(path, int), path.write_text("42"), read_parsed(path, int)
        (None, 2, 42)
    """
    if not path.exists():
        return None
    with reading(path):
        return parse(read_text(path))


def read_lines(path: str | Path, *, keep_ends: bool = False) -> Iterator[str]:
    """The lines of a UTF-8 text file, one at a time, without their ends unless these are asked for (as `csv` does).

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "names.txt"
        >>> _ = path.write_text("cat\\ndog\\n")
        >>> list(read_lines(path))
        ['cat', 'dog']
    """
    newline = "" if keep_ends else None
    with open_regular(path) as file, io.TextIOWrapper(file, "utf-8-sig", newline=newline) as lines, reading(path):
        number = 0
        while line := lines.readline(MAX_LINE_LENGTH + 2):
            number += 1
            if len(line.rstrip("\r\n")) > MAX_LINE_LENGTH:
                raise InputError(f"{path}: line {number}: expected at most {MAX_LINE_LENGTH} characters, found more")
            yield line if keep_ends else line.rstrip("\r\n")


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
            with suppress(FileNotFoundError):  # a signal may come when it has been renamed already
                os.unlink(temporary.name)
            raise
    sync_directory(path.parent)


def write_file(path: str | Path, data: bytes | str) -> None:
    """Publish a whole file, its directory made if need be; a disk that refuses it is said in one line with the path.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "new" / "result.json"
        >>> write_file(path, "{}")
        >>> path.read_bytes()
        b'{}'
    """
    with writing(path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with publish(path) as file:
            file.write(data.encode() if isinstance(data, str) else data)


def first_free(path: str | Path) -> Path:
    """The first of `path-1`, `path-2`, … that does not exist: where something is put aside.

    Example:
        >>> first_free("/no/such/run.replaced").name
        'run.replaced-1'
    """
    numbered = (Path(f"{path}-{number}") for number in itertools.count(1))
    return next(place for place in numbered if not place.exists())


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
    with open_regular(path) as file, reading(path):
        return hashlib.file_digest(file, "sha256").hexdigest()
