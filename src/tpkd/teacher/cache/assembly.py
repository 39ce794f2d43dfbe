"""A cache that is being written: begun or taken up again, shard by shard, and finished with its index.

Whoever computes the shards or has them from elsewhere, what is on disk is the same after the same shards.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tpkd.errors import InputError
from tpkd.files import write_file, writing
from tpkd.lock import LOCK_NAME, locked
from tpkd.teacher.cache.contents import Contents, damaged_index, damaged_shards, read_contents
from tpkd.teacher.cache.draft import discard_drafts
from tpkd.teacher.cache.entries import IndexEntry, ShardEntry
from tpkd.teacher.cache.index import write_index
from tpkd.teacher.cache.journal import JOURNAL_NAME, append_line, begin_journal, encode_line, trim_journal
from tpkd.teacher.cache.manifest import MANIFEST_NAME, Manifest, read_manifest
from tpkd.teacher.cache.shard_set import ShardSet

WithKeys = Callable[[Manifest, int, ShardEntry], ShardEntry]
"""From a shard of version 0.1 and its number to what a journal says of it."""


class Assembly:
    """A cache that this process is writing. Made by `assembling`."""

    def __init__(self, contents: Contents, with_keys: WithKeys) -> None:
        """Take up a cache whose directory is held; everything that is there is hashed."""
        self._contents, self._with_keys = contents, with_keys
        self._shards = list(contents.shards)
        self._end = contents.journal
        self.manifest = contents.manifest
        self.pending = [*sorted(damaged_shards(contents)), *self.manifest.shard_numbers[len(self._shards) :]]
        """The shards that are missing or damaged, in order."""

    def record(self, index: int, entry: ShardEntry) -> None:
        """Name a shard whose file is there: the next one, or an earlier one that was written again."""
        if self._end is None:
            self._contents = _with_journal(self._contents, self._with_keys)
            self._shards, self._end = list(self._contents.shards), self._contents.journal
        place = index - self.manifest.shard_numbers.start
        if self._shards[place : place + 1] != [entry]:
            self._append(entry)
            self._shards[place : place + 1] = [entry]

    def finish(self) -> None:
        """Write the index if the cache needs one and it is missing or damaged, and remove what is left of drafts."""
        contents = replace(self._contents, shards=tuple(self._shards), journal=self._end)
        if damaged_index(contents) is not None:
            contents = replace(contents, index=None)
        if contents.needs_index:
            entry = write_index(contents.directory, ShardSet(contents).key_blocks(), self.manifest.samples)
            if entry != self._contents.index:
                self._append(entry)
        discard_drafts(contents.directory, keep=set())

    def _append(self, entry: ShardEntry | IndexEntry) -> None:
        assert self._end is not None
        self._end = append_line(self._contents.directory / JOURNAL_NAME, entry.to_dict(), self._end)


@contextmanager
def assembling(
    directory: Path, begin: Callable[[int | None], Manifest], with_keys: WithKeys, *, activity: str = "build"
) -> Iterator[Assembly]:
    """Hold a directory and write a cache there: a new one, or one of the same recipe and rows that is not finished.

    Args:
        directory: new, empty, or a cache.
        begin: the manifest of a new cache, or, with the rows per shard of the one that is there, what it must be.
        with_keys: see `WithKeys`.
        activity: what a second writer is told.

    Raises:
        InputError: the directory holds something else or is being written.
    """
    with locked(directory, activity):
        # Holding the lock: whatever is half written here belongs to a process that was killed.
        for partial in directory.glob(".*.partial"):
            with writing(partial, "removed"):
                partial.unlink()
        if (directory / MANIFEST_NAME).exists():
            contents = _take_up(directory, begin, with_keys)
        else:
            contents = _begin(directory, begin(None))
        yield Assembly(contents, with_keys)


def _begin(directory: Path, manifest: Manifest) -> Contents:
    foreign = sorted(path.name for path in directory.iterdir() if path.name != LOCK_NAME)
    if foreign:
        raise InputError(f"{directory}: expected an empty directory or a teacher cache, found {foreign[0]}")
    manifest.publish(directory)
    return read_contents(directory)


def _take_up(directory: Path, begin: Callable[[int | None], Manifest], with_keys: WithKeys) -> Contents:
    found = read_manifest(directory)
    expected = begin(found.shard_rows)
    differences = expected.differences(found)
    if differences:
        raise InputError(
            f"{directory}: holds another cache: {'; '.join(differences)}; take another directory, or remove this one"
        )
    contents = read_contents(directory)
    if contents.journal is not None:
        trim_journal(directory / JOURNAL_NAME, contents.journal)
    source = expected.model_source or found.model_source
    renamed = replace(found, model_source=source)
    if renamed == found:
        return contents
    if contents.journal is None:
        return _with_journal(replace(contents, manifest=renamed), with_keys)
    renamed.publish(directory)
    return replace(contents, manifest=renamed)


def _with_journal(contents: Contents, with_keys: WithKeys) -> Contents:
    """Give a cache of version 0.1 a journal; its manifest changes last, and until then names the shards itself."""
    end, lines = begin_journal(contents.manifest.fingerprint), []
    for index, entry in enumerate(contents.shards):
        line, end = encode_line(with_keys(contents.manifest, index, entry).to_dict(), end)
        lines.append(line)
    write_file(contents.directory / JOURNAL_NAME, b"".join(lines))
    contents.manifest.publish(contents.directory)
    return read_contents(contents.directory)
