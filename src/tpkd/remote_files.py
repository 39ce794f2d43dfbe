"""Files of object stores and hubs, read through fsspec: a verified copy on this machine, made once."""

import hashlib
import os
import queue
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tpkd.errors import InputError, reason
from tpkd.files import publish, read_text, sha256, write_file, writing

STALL_SECONDS = 20.0
"""How long a store may say nothing before it counts as not answering."""
CHUNK_BYTES = 8 << 20
THREAD_NAME = "tpkd store"
"""Of the threads that wait for a store."""
MAX_FILES = 1_000_000
"""Of a folder that is copied whole."""
CACHE_VARIABLE = "TPKD_CACHE"

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "hf": "huggingface_hub"}
"""What fsspec needs for a scheme."""
SCHEMES = (*_PACKAGES, "file")

Found = TypeVar("Found")


def is_remote(path: str) -> bool:
    """Whether a path names a file of a store that we read from.

    Example:
        >>> is_remote("s3://bucket/cache"), is_remote("runs/cache"), is_remote("ftp://host/x")
        (True, False, False)
    """
    scheme = _SCHEME.match(path)
    return scheme is not None and scheme[1].lower() in SCHEMES


def local_path(path: str, *, sha256: str | None = None) -> Path:
    """A file or folder as this machine has it: itself, or a copy of what a store has.

    A copy is kept in the folder that TPKD_CACHE names (by default `~/.cache/tpkd`), by its address and the version that
    the store reports, and is hashed again before it is used. What changes while it is copied is refused.

    Args:
        path: a path, or an address such as `s3://bucket/folder`.
        sha256: of the file, where it is known: then the copy is found by it.

    Raises:
        InputError: the store does not answer or refuses, there is no such file, or it is not the one expected.

    Example:
        >>> local_path("data/train.csv").as_posix()
        'data/train.csv'
    """
    if not is_remote(path):
        return Path(path)
    scheme, _, rest = path.partition("://")
    if scheme.lower() == "file":
        return Path("/" + rest.lstrip("/"))
    if sha256 is not None and (kept := _intact(copies_directory() / "objects" / sha256, sha256)):
        return kept
    store = _Store(path)
    if sha256 is None and store.is_folder():
        return store.copy_folder()
    return store.copy_file(path, sha256)


def copies_directory() -> Path:
    """Where copies are kept."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named) if named else Path.home() / ".cache" / "tpkd"


class _Store:
    """The file system of an address; each call that waits for it ends after some time."""

    def __init__(self, address: str) -> None:
        self._address = address
        scheme = address.partition("://")[0].lower()
        try:
            import fsspec

            options = {"config_kwargs": {"retries": {"max_attempts": 2}}} if scheme == "s3" else {}
            # Not cached: an instance that has failed, or was made in another process, would be used again.
            self._system: Any = fsspec.filesystem(scheme, skip_instance_cache=True, use_listings_cache=False, **options)
        except ImportError as error:
            package = _PACKAGES[scheme]
            raise InputError(f"{address}: {scheme}:// needs the package {package}: pip install {package}") from error

    def is_folder(self) -> bool:
        return bool(self._ask(lambda: self._system.isdir(self._address), self._address))

    def copy_file(self, address: str, expected: str | None = None) -> Path:
        """Copy one file, unless a copy of this version is there already."""
        version = self._version(address)
        key = hashlib.sha256(f"{address}\n{version}".encode()).hexdigest()
        objects = copies_directory() / "objects"
        target = objects / (expected or f"{key[:32]}/{_file_name(address)}")
        recorded = objects / f"{key[:32]}.sha256"
        known = expected or (read_text(recorded, 1 << 10) if recorded.exists() else None)
        if known is not None and (kept := _intact(target, known)):
            return kept
        digest = self._copy(address, target, expected)
        if self._version(address) != version:
            target.unlink(missing_ok=True)
            raise InputError(f"{address}: it was replaced while it was read; try again when nothing writes there")
        if expected is None:
            write_file(recorded, digest)
        return target

    def _version(self, address: str) -> str:
        """What tells one content of an address from the next: size, and tag or time as far as the store has them."""
        found = self._ask(lambda: self._system.info(address), address)
        parts = [
            found.get(key) for key in ("size", "ETag", "etag", "generation", "LastModified", "mtime", "sha", "blob_id")
        ]
        return repr([str(part) for part in parts if part is not None])

    def _copy(self, address: str, target: Path, expected: str | None) -> str:
        size = int(self._ask(lambda: self._system.info(address), address)["size"])
        digest, copied = hashlib.sha256(), 0
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with publish(target) as file:
                for chunk in self._chunks(address):
                    file.write(chunk)
                    digest.update(chunk)
                    copied += len(chunk)
                if copied != size:
                    raise InputError(f"{address}: expected {size} bytes, found {copied}: the store ended too early")
                if expected is not None and digest.hexdigest() != expected:
                    raise InputError(f"{address}: expected SHA-256 {expected}, found {digest.hexdigest()}")
        return digest.hexdigest()

    def _chunks(self, address: str) -> Iterator[bytes]:
        opened = self._ask(lambda: self._system.open(address, "rb", cache_type="none"), address)
        while chunk := self._ask(lambda: opened.read(CHUNK_BYTES), address):
            yield chunk

    def copy_folder(self) -> Path:
        """Copy all files of a folder, and lay them out as there."""
        found = self._ask(lambda: self._system.find(self._address, detail=False), self._address)
        if len(found) > MAX_FILES:
            raise InputError(f"{self._address}: expected at most {MAX_FILES} files, found {len(found)}")
        root = self._system._strip_protocol(self._address).rstrip("/")
        scheme = self._address.partition("://")[0]
        versions, copies = [], []
        for name in sorted(found):
            inside = name.removeprefix(root).lstrip("/")
            if not inside or ".." in Path(inside).parts:
                raise InputError(f"{self._address}: expected file names below it, found {name!r}")
            copy = self.copy_file(f"{scheme}://{name}")
            copies.append((inside, copy))
            versions.append(f"{inside}\n{copy.name}")
        key = hashlib.sha256("\n".join([self._address, *versions]).encode()).hexdigest()
        folder = copies_directory() / "folders" / key
        for inside, copy in copies:
            lay_copy(copy, folder / inside)
        return folder

    def _ask(self, question: Callable[[], Found], address: str) -> Found:
        """Ask the store in a thread of its own, because not every client of a store ends by itself."""
        answers: queue.Queue[tuple[bool, Any]] = queue.Queue()

        def ask() -> None:
            try:
                answers.put((True, question()))
            except BaseException as error:
                answers.put((False, error))

        threading.Thread(target=ask, name=THREAD_NAME, daemon=True).start()
        try:
            good, answer = answers.get(timeout=STALL_SECONDS)
        except queue.Empty:
            waited = f"the store did not answer for {STALL_SECONDS:g} seconds"
            raise InputError(f"{address}: cannot be read: {waited}") from None
        if good:
            found: Found = answer
            return found
        if isinstance(answer, ImportError):
            raise InputError(f"{address}: cannot be read: {reason(answer)}") from answer
        if isinstance(answer, FileNotFoundError):
            raise InputError(f"{address}: cannot be read: no such file in the store") from answer
        raise InputError(f"{address}: cannot be read: {type(answer).__name__}: {reason(answer)}") from answer


def _file_name(address: str) -> str:
    """The name of the copy, which messages show and whose suffix readers look at."""
    name = address.rstrip("/").rpartition("/")[2]
    return name if name.isprintable() and 0 < len(name.encode()) <= 200 and name not in (".", "..") else "file"


def _intact(path: Path, expected: str) -> Path | None:
    """A copy that still is what was copied."""
    return path if path.exists() and sha256(path) == expected else None


def lay_copy(copy: Path, place: Path) -> None:
    """Give a copy its name in a folder, without a second one of its bytes where the disk allows it."""
    with writing(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists() and os.path.samefile(place, copy):
            return
        place.unlink(missing_ok=True)
        try:
            os.link(copy, place)
        except OSError:
            with copy.open("rb") as source, publish(place) as file:
                while chunk := source.read(CHUNK_BYTES):
                    file.write(chunk)
