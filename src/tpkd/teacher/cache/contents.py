"""What the files of a cache say: its manifest, and the shards and the index that its journal names."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tpkd.errors import InputError
from tpkd.files import file_size, reading, sha256
from tpkd.teacher.cache.entries import (
    INDEX_NAME,
    IndexEntry,
    ShardEntry,
    index_contradictions,
    read_shard_entry,
    shard_contradictions,
)
from tpkd.teacher.cache.journal import JOURNAL_NAME, JournalEnd, read_journal
from tpkd.teacher.cache.manifest import MANIFEST_NAME, Manifest, read_manifest_and_shards
from tpkd.teacher.cache.runs import RunIndex, run_index
from tpkd.teacher.cache.shards import shard_name, shard_number


@dataclass(frozen=True)
class Contents:
    """What is written of a cache, or of a part of one: its first shards in order, and the index at the end."""

    directory: Path
    manifest: Manifest
    shards: tuple[ShardEntry, ...]
    index: IndexEntry | None = None
    journal: JournalEnd | None = field(default=None, repr=False)
    """Where the journal ends; None in a cache of version 0.1, which has none."""

    @property
    def rows_written(self) -> int:
        """How many rows the written shards hold."""
        return sum(entry.rows for entry in self.shards)

    @property
    def all_shards(self) -> bool:
        """Whether every shard is written."""
        return len(self.shards) == len(self.manifest.shard_numbers)

    @cached_property
    def runs(self) -> RunIndex | None:
        """Finds rows by arithmetic; None where the keys do not allow that."""
        first = self.manifest.row_numbers.start
        return run_index((entry.key_runs for entry in self.shards), self.manifest.views, first)

    @property
    def needs_index(self) -> bool:
        """Whether a file has to be written yet by which rows are found."""
        whole = self.all_shards and self.manifest.part is None and self.journal is not None
        return whole and self.index is None and self.runs is None

    @property
    def complete(self) -> bool:
        """Whether nothing is left to write."""
        return self.all_shards and not self.needs_index

    @property
    def missing(self) -> str:
        """What an unfinished cache lacks."""
        rows = f"expected {len(self.manifest.row_numbers)} rows, found {self.rows_written} written"
        torn = self.journal is not None and self.journal.torn
        if torn:
            rows += f" and the last line of {JOURNAL_NAME} torn"
        return rows if torn or not self.all_shards else f"expected {INDEX_NAME}, found none"

    @property
    def bytes(self) -> int:
        """Of the written shards."""
        return sum(entry.bytes for entry in self.shards)


def read_contents(directory: Path) -> Contents:
    """What is written of a cache; every file that is named is one of the directory itself.

    Raises:
        InputError: there is no cache, or its manifest or a line of its journal is not what a build writes.
    """
    manifest, earlier = read_manifest_and_shards(directory)
    if earlier is not None:
        _check_earlier(directory / MANIFEST_NAME, manifest, earlier)
        return Contents(directory, manifest, earlier)
    path = directory / JOURNAL_NAME
    shards: list[ShardEntry] = []
    index = None

    def take(number: int, line: dict[str, Any]) -> None:
        nonlocal index
        try:
            place, entry = _entry(line, manifest, len(shards))
        except ValueError as error:
            raise InputError(f"{path}: line {number}: {error}") from error
        if isinstance(entry, IndexEntry):
            index = entry
        else:
            shards[place : place + 1] = [entry]

    end = read_journal(path, manifest.fingerprint, take)
    return Contents(directory, manifest, tuple(shards), index, end)


def _entry(line: dict[str, Any], manifest: Manifest, written: int) -> tuple[int, ShardEntry | IndexEntry]:
    """What a line says, and which of the shards of the directory it is about: the next one, or an earlier one again."""
    numbers = manifest.shard_numbers
    if line.get("file") == INDEX_NAME:
        index = IndexEntry.from_dict(line)
        _refuse(index_contradictions(index))
        if written != len(numbers):
            raise ValueError(f"file: expected {shard_name(numbers[written])}, found {INDEX_NAME}")
        return written, index
    entry = read_shard_entry(line)
    number = shard_number(entry.file)
    place = written if number is None else number - numbers.start
    if not 0 <= place <= written:
        place = written
    if place == len(numbers):
        raise ValueError(f"file: expected at most {len(numbers)} shards, found {entry.file} as well")
    first, last = manifest.bounds(numbers[place])
    _refuse(shard_contradictions(entry, shard_name(numbers[place]), last - first))
    return place, entry


def _refuse(contradictions: Iterator[tuple[str, object, object]]) -> None:
    for name, expected, found in contradictions:
        raise ValueError(f"{name}: expected {expected}, found {found!r}")


def _check_earlier(path: Path, manifest: Manifest, shards: tuple[ShardEntry, ...]) -> None:
    if len(shards) > manifest.num_shards:
        raise InputError(f"{path}: shards: expected at most {manifest.num_shards}, found {len(shards)}")
    for index, entry in enumerate(shards):
        first, last = manifest.bounds(index)
        for name, expected, found in shard_contradictions(entry, shard_name(index), last - first):
            raise InputError(f"{path}: shards[{index}].{name}: expected {expected}, found {found!r}")


def damaged_shards(contents: Contents) -> dict[int, str]:
    """The shards that are not the bytes that were written, each with a line that names the file."""

    def check(entry: ShardEntry) -> str | None:
        return damage(contents.directory / entry.file, entry.bytes, entry.sha256)

    with ThreadPoolExecutor() as threads:  # hashing releases the interpreter
        problems = zip(contents.manifest.shard_numbers, threads.map(check, contents.shards), strict=False)
    return {index: problem for index, problem in problems if problem is not None}


def damaged_index(contents: Contents) -> str | None:
    """What is wrong with the file of the index, None where nothing is or there is none."""
    entry = contents.index
    return None if entry is None else damage(contents.directory / entry.file, entry.bytes, entry.sha256)


def damage(path: Path, size: int, digest: str) -> str | None:
    """Why a file is not the one that was written, None where it is.

    Example:
        >>> damage(Path("/no/such/file"), 3, "")
        '/no/such/file: cannot be read: No such file or directory'
    """
    try:
        with reading(path):
            found_size = file_size(path)
            if found_size != size:
                return f"{path}: expected {size} bytes, found {found_size}"
            found = sha256(path)
    except InputError as error:
        return str(error)
    return None if found == digest else f"{path}: expected SHA-256 {digest}, found {found}"
