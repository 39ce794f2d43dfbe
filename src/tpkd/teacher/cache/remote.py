"""A cache in an object store: manifest and journal are read there, and each shard is copied and verified once."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tpkd.errors import InputError
from tpkd.remote_files import copies_directory, is_remote, lay_copy, local_path
from tpkd.teacher.cache.contents import Contents, read_contents
from tpkd.teacher.cache.journal import JOURNAL_NAME
from tpkd.teacher.cache.manifest import MANIFEST_NAME, read_manifest_and_shards

CONNECTIONS = 8
"""Shards that are copied at a time."""


def readable_cache(place: str | Path, *, shards: bool = True) -> Path:
    """The directory of a cache on this machine: itself, or a copy of one in a store.

    A copy is as large as the cache. It is kept (see `tpkd.remote_files.local_path`), each shard under its SHA-256, so
    that an interrupted copy continues and caches share what is equal. No shard is read that is not the journal's.

    Args:
        place: a directory, or an address such as `s3://bucket/cache`.
        shards: whether rows will be read; otherwise manifest and journal are enough.

    Raises:
        InputError: there is no cache, the store does not answer, or a file is not what the journal says.

    Example:
        >>> readable_cache("runs/cache").as_posix()
        'runs/cache'
    """
    if not is_remote(str(place)):
        return Path(place)
    address = str(place).rstrip("/")
    if address.startswith("file://"):
        return local_path(address)
    manifest = local_path(f"{address}/{MANIFEST_NAME}")
    mirror = copies_directory() / "caches" / hashlib.sha256(address.encode()).hexdigest()[:32]
    lay_copy(manifest, mirror / MANIFEST_NAME)
    if read_manifest_and_shards(mirror)[1] is None:  # those of version 0.1 have no journal
        lay_copy(local_path(f"{address}/{JOURNAL_NAME}"), mirror / JOURNAL_NAME)
    if shards:
        _copy_files(address, mirror, read_contents(mirror))
    return mirror


def _copy_files(address: str, mirror: Path, contents: Contents) -> None:
    entries = [(entry.file, entry.sha256) for entry in contents.shards]
    if contents.index is not None:
        entries.append((contents.index.file, contents.index.sha256))

    def copy(entry: tuple[str, str]) -> None:
        name, digest = entry
        lay_copy(local_path(f"{address}/{name}", sha256=digest), mirror / name)

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        for _ in threads.map(copy, entries):
            pass


def refuse_writing(key: str, place: str) -> None:
    """Refuse to build a cache in a store.

    Raises:
        InputError: names the key and what to do.
    """
    if is_remote(place) and not place.startswith("file://"):
        way_out = "build it in a directory of this machine and upload that"
        raise InputError(f"{key}: {place} can be read but not written; {way_out}")
