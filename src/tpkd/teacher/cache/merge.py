"""Put the parts of a cache together: the same bytes as if one build had written all of it."""

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tpkd.errors import InputError
from tpkd.files import open_regular, publish, reading, sync_directory, writing
from tpkd.teacher.cache.assembly import assembling
from tpkd.teacher.cache.contents import Contents, damaged_shards, read_contents
from tpkd.teacher.cache.entries import ShardEntry
from tpkd.teacher.cache.manifest import Manifest
from tpkd.teacher.cache.parts import place_of_whole

OnShards = Callable[[int, int], None]
"""Called with the shards that are in place and with how many there are."""

_CANNOT_LINK = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS)
_COPIED_AT_ONCE = 1 << 20


def merge_parts(
    directories: Sequence[str | Path], out: str | Path | None = None, *, on_shards: OnShards | None = None
) -> Path:
    """Make one cache of all its parts; returns its directory.

    Every part is read and checked before anything is written. The shards are hard links to those of the parts, or
    copies where the file system has no links or is another one, so the parts may be removed afterwards. A merge that
    was killed leaves an unfinished cache, which no reader opens; the same command continues it.

    Args:
        directories: all parts, in any order.
        out: where the cache goes: new, empty, or the same cache unfinished. By default where `--part` was asked to
            build it, if the names of the parts say so.
        on_shards: told how many shards are in place.

    Raises:
        InputError: a part is missing, given twice, unfinished, damaged or of another cache; it is named.

    Example:
        >>> merge_parts(["/no/such/part"], "merged")
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: /no/such/part: expected a teacher cache, found no manifest.json
    """
    places = [Path(directory) for directory in directories]
    target = place_of_whole(places) if out is None else Path(out)
    if target is None:
        raise InputError("--out: missing, and the names of the parts do not say where the cache belongs")
    parts = _read_parts(places)
    shards = {number: (part, entry) for part in parts for number, entry in _numbered(part)}
    whole = replace(parts[0].manifest, part=None)

    def with_keys(manifest: Manifest, index: int, entry: ShardEntry) -> ShardEntry:
        known = shards[index][1]
        return replace(entry, first=known.first, last=known.last, runs=known.runs)

    with assembling(target, lambda _: whole, with_keys, activity="merge") as cache:
        if cache.manifest.shard_rows != whole.shard_rows:
            found = f"expected shards of {whole.shard_rows} rows as in {places[0]}, found {cache.manifest.shard_rows}"
            raise InputError(f"{target}: {found}; take another directory, or remove this one")
        for done, index in enumerate(cache.pending, whole.num_shards - len(cache.pending)):
            if on_shards is not None:
                on_shards(done, whole.num_shards)
            part, entry = shards[index]
            _transfer(part.directory / entry.file, target / entry.file, entry)
            cache.record(index, entry)
        cache.finish()
        if on_shards is not None:
            on_shards(whole.num_shards, whole.num_shards)
    return target


def _numbered(part: Contents) -> Iterable[tuple[int, ShardEntry]]:
    return zip(part.manifest.shard_numbers, part.shards, strict=True)


def _read_parts(places: Sequence[Path]) -> list[Contents]:
    """All parts in order, each complete and sound, and together the whole."""
    if not places:
        raise InputError("parts: expected all parts of a cache, found none")
    found: dict[int, Contents] = {}
    for place in places:
        contents = read_contents(place)
        part = contents.manifest.part
        if part is None:
            raise InputError(f"{place}: expected a part, as `tpkd cache build --part` writes it, found a whole cache")
        first = next(iter(found.values()), contents)
        _check_same(first, contents)
        if part.number in found:
            raise InputError(f"{place}: expected every part once, found {part} in {found[part.number].directory} too")
        if not contents.complete:
            raise InputError(f"{place}: {part}: {contents.missing}; build this part again to compute the rest")
        found[part.number] = contents
        total = part.total
    missing = [number for number in range(1, total + 1) if number not in found]
    if missing:
        raise InputError(f"{places[0]}: expected all {total} parts, found no part {', '.join(map(str, missing))}")
    for contents in found.values():
        for problem in damaged_shards(contents).values():
            raise InputError(f"{problem}; build this part again")
    return [found[number] for number in sorted(found)]


def _check_same(first: Contents, other: Contents) -> None:
    """Refuse a part of another cache, or of the same cache cut in another way."""
    expected, found = first.manifest, other.manifest
    assert expected.part is not None
    assert found.part is not None
    differences = replace(expected, part=None).differences(replace(found, part=None))
    if expected.shard_rows != found.shard_rows:
        differences.append(f"shard_rows: expected {expected.shard_rows}, found {found.shard_rows}")
    if expected.part.total != found.part.total:
        differences.append(f"part: expected one of {expected.part.total}, found {found.part}")
    if differences:
        raise InputError(
            f"{other.directory}: expected a part of the same cache as {first.directory}: {'; '.join(differences)}"
        )


def _transfer(source: Path, target: Path, entry: ShardEntry) -> None:
    """Let a shard appear in the merged cache, whole or not at all."""
    with writing(target):
        try:
            _link(source, target)
        except OSError as error:
            if error.errno not in _CANNOT_LINK:
                raise
            _copy(source, target, entry)


def _link(source: Path, target: Path) -> None:
    temporary = target.with_name(f".{target.name}.partial")
    temporary.unlink(missing_ok=True)
    os.link(source, temporary)
    os.replace(temporary, target)
    with suppress(FileNotFoundError):  # a rename onto another link of the same file leaves both
        temporary.unlink()
    sync_directory(target.parent)


def _copy(source: Path, target: Path, entry: ShardEntry) -> None:
    digest = hashlib.sha256()
    with open_regular(source) as file, reading(source), publish(target) as copy:
        while block := file.read(_COPIED_AT_ONCE):
            digest.update(block)
            copy.write(block)
        if digest.hexdigest() != entry.sha256:
            raise InputError(f"{source}: expected SHA-256 {entry.sha256}, found {digest.hexdigest()}")
