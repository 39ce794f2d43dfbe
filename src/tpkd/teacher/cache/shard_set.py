"""The shards of an open cache: looked at when a row of them is read, mapped as long as there is room."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tpkd.errors import InputError
from tpkd.teacher.cache.contents import Contents
from tpkd.teacher.cache.keys import Keys
from tpkd.teacher.cache.maps import open_maps, release, standing_maps
from tpkd.teacher.cache.rows import hash_blocks
from tpkd.teacher.cache.shards import shard_layout
from tpkd.teacher.cache.tensors import Layout, TensorFile, identify, open_tensors


class ShardSet:
    """The written shards of a cache, or of a part of one. Opening it asks the system for their sizes alone."""

    def __init__(self, contents: Contents) -> None:
        """Note which files there are.

        Raises:
            InputError: one is missing or of another size.
        """
        self._contents, self._directory = contents, contents.directory
        self._first = contents.manifest.shard_numbers.start
        self._identities = [identify(self._directory / entry.file, entry.bytes) for entry in contents.shards]
        self._files: list[TensorFile | None] = [None] * len(contents.shards)
        self._layouts: dict[int, Layout] = {}
        columns = contents.manifest.recipe.columns
        self._offsets = {name: np.full(len(contents.shards), -1) for name in columns}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._files)

    def path(self, place: int) -> Path:
        """The file of a shard, counted from the first of this directory."""
        return self._directory / self._contents.shards[place].file

    def gather(self, name: str, rows: Keys) -> bytearray:
        """The bytes of a column, row by row."""
        shard_rows = self._contents.manifest.shard_rows
        shard, place = np.divmod(rows, shard_rows)
        shard -= self._first
        width = self._contents.manifest.recipe.columns[name].row_bytes
        offsets = self._offsets[name][shard]
        if offsets.min(initial=0) < 0:
            for each in np.unique(shard[offsets < 0]).tolist():
                self._open(each)
            offsets = self._offsets[name][shard]
        start = offsets + place * width
        if len(self._files) > standing_maps():
            return self._copy_by_shard(shard, start, width)
        # Joining slices of bytes costs a third of indexing an array per shard, as a batch touches most shards.
        mapped, files = open_maps(), self._files
        places = zip(shard.tolist(), start.tolist(), (start + width).tolist(), strict=True)
        return bytearray().join([mapped(files[index])[first:last] for index, first, last in places])

    def _copy_by_shard(self, shard: np.ndarray, start: np.ndarray, width: int) -> bytearray:
        """Shard by shard, so that a batch holds at most one map beyond those kept open."""
        order = shard.argsort(kind="stable")
        gathered, current = bytearray(len(order) * width), -1
        target, pages = memoryview(gathered), memoryview(b"")
        for position, index, first in zip(order.tolist(), shard[order].tolist(), start[order].tolist(), strict=True):
            if index != current:
                pages, current = open_maps()(self._open(index)), index
            target[position * width : (position + 1) * width] = pages[first : first + width]
        return gathered

    def release(self, rows: Keys) -> None:
        """Give back the memory of the shards that rows are in."""
        for shard in np.unique(rows // self._contents.manifest.shard_rows).tolist():
            release(open_maps()(self._open(shard - self._first)))

    def key_blocks(self) -> Iterator[tuple[Keys, Keys]]:
        """Sample and view ids of one shard after the other, each mapped in its turn."""
        return zip(self.column("sample_ids"), self.column("view_ids"), strict=True)

    def column(self, name: str) -> Iterator[np.ndarray]:
        """A tensor of one shard after the other, each mapped in its turn."""
        for place in range(len(self._files)):
            file = self._open(place)
            yield file.array(file.map(), name)

    def all_of(self, name: str) -> np.ndarray:
        """A tensor of all shards, copied."""
        return np.concatenate([np.zeros(0, np.int64), *(ids.copy() for ids in self.column(name))])

    def check_keys(self) -> None:
        """Compare the keys of all rows with what manifest and journal say of them.

        Raises:
            InputError: a shard holds rows of other keys, or one that is not written.
        """
        contents = self._contents
        views = contents.manifest.views
        columns = zip(contents.shards, self.key_blocks(), self.column("written"), strict=True)
        for place, (entry, (samples, view_ids), written) in enumerate(columns):
            if not written.all():
                row = int(written.argmin())
                raise InputError(f"{self.path(place)}: expected every row written, found that row {row} is not")
            if entry.first is not None and entry.with_keys(samples, view_ids, views) != entry:
                raise InputError(f"{self.path(place)}: expected rows with keys as the journal has them, found others")
        if contents.all_shards and contents.manifest.part is None:
            expected = contents.manifest.keys_sha256
            found = hash_blocks(self.column("sample_ids"), self.column("view_ids"))
            if found != expected:
                raise InputError(f"{self._directory}: expected rows with keys {expected}, found {found}")

    def _open(self, place: int) -> TensorFile:
        """Look at a shard, once."""
        known = self._files[place]
        if known is not None:
            return known
        entry, path = self._contents.shards[place], self.path(place)
        layout = self._layouts.setdefault(entry.rows, shard_layout(self._contents.manifest.recipe, entry.rows))
        file = open_tensors(path, layout, entry.bytes, self._identities[place])
        if entry.first is not None and entry.last is not None:
            pages = file.map()
            samples, views = file.array(pages, "sample_ids"), file.array(pages, "view_ids")
            ends = tuple((int(samples[row]), int(views[row])) for row in (0, -1))
            if ends != (tuple(entry.first), tuple(entry.last)):
                raise InputError(f"{path}: expected rows with keys from {entry.first} to {entry.last}, found {ends}")
        for name, offsets in self._offsets.items():
            offsets[place] = file.offsets[name]
        self._files[place] = file
        return file
