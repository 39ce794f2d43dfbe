"""The journal of a cache: a line for each file that is finished, appended and never rewritten.

Every line carries a checksum of itself and of all lines before it. A line that a kill or a power cut has torn can only
be the last one; it is dropped, and what it named is written again. Damage anywhere else is refused by its line.
"""

import errno
import json
import os
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tpkd.errors import InputError
from tpkd.files import open_regular, reading, sync_directory, writing

JOURNAL_NAME = "shards.jsonl"
MAX_LINE_BYTES = 1 << 14
"""A line names one file; a longer one was not written by tpkd and is not parsed."""

_END = re.compile(rb',"crc":"([0-9a-f]{8})"}\n')
_END_BYTES = len(b',"crc":"00000000"}\n')


@dataclass(frozen=True)
class JournalEnd:
    """How far a journal is whole, and what its next line builds on."""

    length: int
    """In bytes."""
    checksum: int
    torn: bool = False
    """Whether something follows that is not a whole line."""


def begin_journal(binding: str) -> JournalEnd:
    """A journal without a line, bound to the cache that it belongs to.

    Example:
        >>> begin_journal("fingerprint") == begin_journal("another")
        False
    """
    return JournalEnd(0, zlib.crc32(binding.encode()))


def encode_line(entry: dict[str, Any], before: JournalEnd) -> tuple[bytes, JournalEnd]:
    """A line, and the end of the journal after it.

    Example:
        >>> encode_line({"file": "a"}, begin_journal("fingerprint"))[0]
        b'{"file":"a","crc":"34d0a3bd"}\\n'
    """
    body = json.dumps(entry, separators=(",", ":"), allow_nan=False).encode()
    checksum = zlib.crc32(body, before.checksum)
    line = body[:-1] + f',"crc":"{checksum:08x}"}}\n'.encode()
    return line, JournalEnd(before.length + len(line), checksum)


def read_journal(path: Path, binding: str, take: Callable[[int, dict[str, Any]], None]) -> JournalEnd:
    """Give out the number and the content of every whole line; returns where the journal ends.

    Raises:
        InputError: a line that is not the last one is damaged; it is named.

    Example:
        >>> read_journal(Path("/no/such/journal"), "fingerprint", print) == begin_journal("fingerprint")
        True
    """
    end, number = begin_journal(binding), 0
    if not path.exists():
        return end
    with open_regular(path) as file, reading(path):
        size = os.fstat(file.fileno()).st_size
        while line := file.readline(MAX_LINE_BYTES):
            number += 1
            entry, after = _decode(line, end)
            if entry is None:
                if end.length + len(line) < size:
                    raise InputError(
                        f"{path}: line {number}: damaged; restore the file, or delete this line and all "
                        "after it and build again, which computes their shards anew"
                    )
                break
            take(number, entry)
            end = after
    return replace(end, torn=end.length < size)


def _decode(line: bytes, before: JournalEnd) -> tuple[dict[str, Any] | None, JournalEnd]:
    """What a line says, None where it is damaged, and the end of the journal after it."""
    match = _END.fullmatch(line[-_END_BYTES:])
    if match is None:
        return None, before
    body = line[:-_END_BYTES] + b"}"
    checksum = zlib.crc32(body, before.checksum)
    if checksum != int(match[1], 16):
        return None, before
    try:
        entry = json.loads(body)
    except (ValueError, RecursionError):
        return None, before
    return (entry if isinstance(entry, dict) else None), JournalEnd(before.length + len(line), checksum)


def append_line(path: Path, entry: dict[str, Any], end: JournalEnd) -> JournalEnd:
    """Put a line behind the whole ones, over whatever is torn there; it is on disk when this returns.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / JOURNAL_NAME
        >>> end = append_line(path, {"file": "a"}, begin_journal("fingerprint"))
        >>> end == read_journal(path, "fingerprint", print)
        1 {'file': 'a'}
        True
    """
    line, after = encode_line(entry, end)
    _replace_tail(path, end.length, line)
    return after


def trim_journal(path: Path, end: JournalEnd) -> None:
    """Cut off what is torn behind the whole lines."""
    if end.torn:
        _replace_tail(path, end.length, b"")


def _replace_tail(path: Path, length: int, tail: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT
    for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"):  # what a link leads to is not ours to write to
        flags |= getattr(os, name, 0)
    with writing(path), os.fdopen(os.open(path, flags, 0o666), "wb", buffering=0) as file:
        try:
            file.truncate(length)
            file.seek(length)
            if file.write(tail) != len(tail):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                file.truncate(length)
            raise
        if length == 0:
            sync_directory(path.parent)
