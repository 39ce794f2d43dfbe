"""One builder a directory: a lock that the system releases when its holder ends, however it ends."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tpkd.files import InputError

LOCK_NAME = ".lock"


@contextmanager
def locked(directory: Path, activity: str = "build") -> Iterator[None]:
    """Hold the directory for writing; a second holder is refused and told the process of the first.

    The lock belongs to the open file, not to the file's existence: after a kill nothing is stale and nothing needs
    removing, so the file stays.

    Example:
        >>> import tempfile
        >>> with locked(Path(tempfile.mkdtemp())) :
        ...     pass
    """
    path = directory / LOCK_NAME
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise InputError(f"{directory}: cannot be written: {error.strerror or error}") from error
    try:
        if not _try_lock(descriptor):
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            raise InputError(
                f"{directory}: another {activity} (process {holder}) is writing here; wait for it or stop it"
            )
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)


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
