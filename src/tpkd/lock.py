"""A lock on a directory that the system releases when the process that holds it ends, however it ends."""

import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tpkd.errors import InputError
from tpkd.files import open_regular, writing

LOCK_NAME = ".lock"
_LOOK_SECONDS = 0.1
LEFT_OVER_SECONDS = 60.0
"""How long a process may take to notice that its parent or its machine is gone."""

_WRITTEN_BY_US = re.compile(rb"\s*\d*\s*")
"""The number of a process, or nothing where its writer was killed before."""


@dataclass(frozen=True)
class Hold:
    """A directory that a process writes into, as it was when the process took hold of it.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp())
        >>> hold = Hold(place, _identity(place))
        >>> place.rmdir()
        >>> hold.check()
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: ...: moved, removed or replaced while a run was writing there; ...
    """

    directory: Path
    identity: tuple[int, int] | None
    """Of the file system and in it; None for a process that leaves it to another one to look."""

    def check(self) -> None:
        """Refuse to go on in another place than the one that was taken; called before anything is written.

        Raises:
            InputError: another directory, or none, goes by the name now.
        """
        if self.identity is not None and _identity(self.directory) != self.identity:
            what = "moved, removed or replaced while a run was writing there"
            raise InputError(f"{self.directory}: {what}; put it back and the same command continues")


def _identity(directory: Path) -> tuple[int, int] | None:
    try:
        found = directory.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def locked(directory: Path, activity: str = "build") -> Iterator[Hold]:
    """Hold the directory for writing; a second holder is refused and told the process of the first.

    The lock belongs to the open file, not to the file's existence: after a kill nothing is stale and nothing needs
    removing, so the file stays.

    Example:
        >>> import tempfile
        >>> with locked(Path(tempfile.mkdtemp())) :
        ...     pass
    """
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = _open_lock(directory / LOCK_NAME)
    try:
        _take(descriptor, directory, activity)
        yield Hold(directory, _identity(directory))
    finally:
        os.close(descriptor)


def wait_until_free(directory: Path, seconds: float = LEFT_OVER_SECONDS) -> bool:
    """Wait for a process that is about to end to let go of a directory; returns whether it did.

    For a job that starts again after its first process was lost with its machine or its parent.

    Example:
        >>> import tempfile
        >>> wait_until_free(Path(tempfile.mkdtemp()), 0.0)
        True
    """
    if not (directory / LOCK_NAME).exists():
        return True
    end = time.monotonic() + seconds
    with writing(directory):
        descriptor = _open_lock(directory / LOCK_NAME)
    try:
        while not (free := _try_lock(descriptor)) and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)
        return free
    finally:
        os.close(descriptor)


def _open_lock(path: Path) -> int:
    """Open the lock or make it. A link is not followed: what it leads to is not ours to write to."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if path.is_symlink():
            raise InputError(f"{path}: expected a lock file of tpkd, found a link; remove it") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        open_regular(path).close()  # names what it is
        raise InputError(f"{path}: expected a regular file")
    return descriptor


def _take(descriptor: int, directory: Path, activity: str) -> None:
    with writing(directory, "locked"):  # a full disk, or a file system without locks
        taken = _try_lock(descriptor)
        content = os.read(descriptor, 64)
        if not taken:
            holder = content.decode(errors="replace").strip() or "unknown"
            raise InputError(
                f"{directory}: another {activity} (process {holder}) is writing here; wait for it or stop it"
            )
        if not _WRITTEN_BY_US.fullmatch(content):
            raise InputError(
                f"{directory / LOCK_NAME}: expected a lock file of tpkd, found another file; "
                "move it away, or take another directory"
            )
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, f"{os.getpid()}\n".encode())


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)  # there a locked byte may not be read, and the process id must be
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
