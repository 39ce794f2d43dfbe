"""What the journal of a cache says about one file: its size and checksum, and where its keys lie."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tpkd.record import Record, added
from tpkd.teacher.cache.keys import Keys
from tpkd.teacher.cache.runs import Run, find_runs

INDEX_NAME = "index.safetensors"

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class ShardEntry(Record):
    """One written shard.

    Example:
        >>> import numpy as np
        >>> entry = ShardEntry("shard-00000.safetensors", 2, 300, "0" * 64)
        >>> entry.with_keys(np.array([7, 8]), np.array([0, 0]), num_views=1).runs
        ((7, 0, 2),)
    """

    file: str
    rows: int
    bytes: int
    sha256: str
    first: tuple[int, ...] | None = added(None)
    """Sample and view id of its first row; None in manifests of version 0.1, as the following."""
    last: tuple[int, ...] | None = added(None)
    runs: tuple[tuple[int, ...], ...] | None = added(None)
    """Sample id, view id and number of rows of each run of its keys; None also where there are too many."""

    def with_keys(self, sample_ids: Keys, view_ids: Keys, num_views: int) -> "ShardEntry":
        """The entry with what there is to say about the keys of its rows."""
        first, last = ((int(sample_ids[row]), int(view_ids[row])) for row in (0, -1))
        runs = find_runs(sample_ids, view_ids, num_views)
        plain = None if runs is None else tuple(map(tuple, runs))
        return replace(self, first=first, last=last, runs=plain)

    @property
    def key_runs(self) -> list[Run] | None:
        """The runs of its keys, None where there are too many or they are not known."""
        return None if self.runs is None else [Run(*run) for run in self.runs]


@dataclass(frozen=True)
class IndexEntry(Record):
    """The sorted index, which a cache has whose rows arithmetic does not find."""

    file: str
    width: int
    """Places for the rows of a sample."""
    bytes: int
    sha256: str


_USUAL = {"schema": int, "file": str, "rows": int, "bytes": int, "sha256": str, "first": list, "last": list}


def read_shard_entry(line: dict[str, Any]) -> ShardEntry:
    """The shard that a line is about, without a record's generic checks for the usual line: there may be many.

    Raises:
        ValueError: a field is missing, unknown or of another type.

    Example:
        >>> line = ShardEntry("shard-00000.safetensors", 2, 300, "0" * 64, (7, 0), (8, 0), ((7, 0, 2),)).to_dict()
        >>> read_shard_entry(line) == ShardEntry.from_dict(line)
        True
    """
    runs = line.get("runs")
    parts = (line.get("first"), line.get("last"), *(runs if type(runs) is list else ()))
    usual = (
        len(line) == len(_USUAL) + (runs is not None)
        and all(type(line.get(name)) is kind for name, kind in _USUAL.items())
        and line["schema"] == ShardEntry.schema
        and (runs is None or type(runs) is list)
        and all(type(part) is list and all(type(number) is int for number in part) for part in parts)
    )
    if not usual:
        return ShardEntry.from_dict(line)
    first, last, *pieces = map(tuple, parts)
    plain = None if runs is None else tuple(pieces)
    return ShardEntry(line["file"], line["rows"], line["bytes"], line["sha256"], first, last, plain)


def shard_contradictions(entry: ShardEntry, file: str, rows: int) -> Iterator[tuple[str, object, object]]:
    """Field, expected and found of everything about a shard that no build writes."""
    if entry.file != file:  # no other name is ever opened, so none can lead out of the directory
        yield "file", file, entry.file
    if entry.rows != rows:
        yield "rows", rows, entry.rows
    if not _SHA256.fullmatch(entry.sha256):
        yield "sha256", "64 hexadecimal digits", entry.sha256
    for name, key in (("first", entry.first), ("last", entry.last)):
        if key is not None and len(key) != 2:
            yield name, "a sample and a view id", key
    if entry.runs is not None and (
        any(len(run) != 3 or run[2] < 1 for run in entry.runs) or sum(run[2] for run in entry.runs) != rows
    ):
        yield "runs", f"sample id, view id and rows of runs of {rows} rows in all", entry.runs


def index_contradictions(entry: IndexEntry) -> Iterator[tuple[str, object, object]]:
    """Field, expected and found of everything about an index that no build writes."""
    if entry.width < 1:
        yield "width", "at least 1", entry.width
    if not _SHA256.fullmatch(entry.sha256):
        yield "sha256", "64 hexadecimal digits", entry.sha256
