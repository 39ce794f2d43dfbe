"""Memory maps that stay open between two reads: a bounded number, over all caches of a process together."""

import mmap
from collections.abc import Callable
from functools import lru_cache

from tpkd.teacher.cache.tensors import TensorFile

MAX_MAPS = 1024
"""Shards that are mapped at a time, where a process may have that many files open."""

Mapped = Callable[[TensorFile], memoryview]
"""From a file to its bytes."""


def standing_maps() -> int:
    """How many shards may be mapped at a time: each takes one of the files that a process may have open.

    A quarter of these, because data loaders need files as well, and a batch may hold as many again while it is read.

    Example:
        >>> 1 <= standing_maps() <= MAX_MAPS
        True
    """
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return MAX_MAPS
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MAX_MAPS if limit == resource.RLIM_INFINITY else max(1, min(MAX_MAPS, limit // 4))


def open_maps() -> Mapped:
    """What maps a file, or gives the map that is open: the most recently used stay open.

    All caches share them, so that an ensemble of teachers needs no more files than one. An evicted map lives until its
    last reader is done. No lock is needed, so a fork cannot inherit a held one: at worst two threads map the same file.
    """
    return _open_maps(standing_maps())


@lru_cache(maxsize=1)
def _open_maps(limit: int) -> Mapped:
    return lru_cache(limit)(lambda file: memoryview(file.map()))


def close_maps() -> None:
    """Close every map that is not being read; those of caches that are still open are mapped again when needed."""
    _open_maps.cache_clear()


def release(pages: memoryview) -> None:
    """Give the pages of a map that were read back to the system, so that a pass over a large cache stays small."""
    if isinstance(pages.obj, mmap.mmap) and hasattr(pages.obj, "madvise"):
        pages.obj.madvise(mmap.MADV_DONTNEED)
