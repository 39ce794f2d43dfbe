"""The manifest of a cache: what it binds, which shards are written, and what they must hash to."""

import hashlib
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tpkd.errors import InputError
from tpkd.files import file_size, read_text, reading, sha256, write_file
from tpkd.record import Record, added
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows, hash_keys, hash_labels
from tpkd.teacher.cache.shards import shard_name

MANIFEST_NAME = "manifest.json"
MAX_MANIFEST_BYTES = 64 << 20
"""Room for some hundred thousand shards; more is not a manifest."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class ShardEntry:
    """One written shard."""

    file: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest(Record):
    """What is bound (recipe, keys and labels, with a fingerprint of them) and what is written: the first shards."""

    fingerprint: str
    recipe: CacheRecipe
    rows: int
    samples: int
    views: int
    keys_sha256: str
    shard_rows: int
    shards: tuple[ShardEntry, ...]
    model_source: str | None = added(None)
    """What the network was built from: where it is as expected, the network need not be built to compare it. Of
    imported logits, the names and hashes of their files.

    Not bound: the fingerprint of the network in the recipe is.
    """
    labels_sha256: str | None = added(None)
    """Of the labels of all rows, where a row keeps its label's log-probability; None where it keeps all logits."""

    @classmethod
    def begin(cls, rows: CacheRows, recipe: CacheRecipe, shard_rows: int) -> "Manifest":
        """The manifest of a cache without a shard."""
        samples, views = len(np.unique(rows.sample_ids)), len(np.unique(rows.view_ids))
        keys_sha256 = hash_keys(rows.sample_ids, rows.view_ids)
        labels_sha256 = None if recipe.top_k is None else hash_labels(rows, recipe.num_classes)
        blank = cls("", recipe, len(rows), samples, views, keys_sha256, shard_rows, (), labels_sha256=labels_sha256)
        return replace(blank, fingerprint=blank.binding_sha256())

    def binding_sha256(self) -> str:
        """SHA-256 of the binding part: recipe, keys and labels; how the rows are cut into files does not matter."""
        written = ("schema", "fingerprint", "shard_rows", "shards", "model_source")
        binding = {key: value for key, value in self.to_dict().items() if key not in written}
        return hashlib.sha256(json.dumps(binding, sort_keys=True).encode()).hexdigest()

    @property
    def answers_sha256(self) -> str:
        """SHA-256 of what decides the logits: the binding part without the further tensors of a row and class names.

        A cache rebuilt without layer features gives the same logits and has the same hash. So does a cache of an
        earlier version, which had no class names; those of the data are part of the data's fingerprint.
        """
        return replace(self, recipe=replace(self.recipe, tensors={}, class_names=None)).binding_sha256()

    @property
    def num_shards(self) -> int:
        """How many shards the finished cache has."""
        return -(-self.rows // self.shard_rows)

    @property
    def rows_written(self) -> int:
        """How many rows the written shards hold."""
        return sum(entry.rows for entry in self.shards)

    def bounds(self, index: int) -> tuple[int, int]:
        """First row of a shard and the row after its last."""
        return index * self.shard_rows, min((index + 1) * self.shard_rows, self.rows)

    def with_shard(self, index: int, entry: ShardEntry) -> "Manifest":
        """The manifest after a shard was written: the next one, or an earlier one again."""
        return replace(self, shards=(*self.shards[:index], entry, *self.shards[index + 1 :]))

    def publish(self, directory: Path) -> None:
        """Replace the manifest on disk."""
        write_file(directory / MANIFEST_NAME, self.to_json())


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a cache, whole and consistent; the shards it names are files of the directory itself.

    Raises:
        InputError: there is none, or a field of it is not what a build writes.
    """
    path = directory / MANIFEST_NAME
    if not path.exists():
        raise InputError(f"{directory}: expected a teacher cache, found no {MANIFEST_NAME}")
    with reading(path):
        manifest = Manifest.from_json(read_text(path, MAX_MANIFEST_BYTES))
    for field, expected, found in _contradictions(manifest):
        raise InputError(f"{path}: {field}: expected {expected}, found {found!r}")
    return manifest


def _contradictions(manifest: Manifest) -> Iterator[tuple[str, object, object]]:
    """Field, expected and found of everything in a manifest that no build writes."""
    if manifest.fingerprint != manifest.binding_sha256():
        yield "fingerprint", manifest.binding_sha256(), manifest.fingerprint
    if manifest.rows < 1:
        yield "rows", "at least 1", manifest.rows
    if manifest.shard_rows < 1:
        yield "shard_rows", "at least 1", manifest.shard_rows
    if len(manifest.shards) > manifest.num_shards:
        yield "shards", f"at most {manifest.num_shards}", len(manifest.shards)
    for index, entry in enumerate(manifest.shards):
        start, stop = manifest.bounds(index)
        if entry.file != shard_name(index):  # no other name is ever opened, so none can lead out of the directory
            yield f"shards[{index}].file", shard_name(index), entry.file
        if entry.rows != stop - start:
            yield f"shards[{index}].rows", stop - start, entry.rows
        if not _SHA256.fullmatch(entry.sha256):
            yield f"shards[{index}].sha256", "64 hexadecimal digits", entry.sha256


def damaged_shards(directory: Path, manifest: Manifest) -> dict[int, str]:
    """The shards that are not the bytes that were written, each with a line that names the file."""

    def check(entry: ShardEntry) -> str | None:
        path = directory / entry.file
        try:
            with reading(path):
                size = file_size(path)
                if size != entry.bytes:
                    return f"{path}: expected {entry.bytes} bytes, found {size}"
                found = sha256(path)
        except InputError as error:
            return str(error)
        return None if found == entry.sha256 else f"{path}: expected SHA-256 {entry.sha256}, found {found}"

    with ThreadPoolExecutor() as threads:  # hashing releases the interpreter
        problems = enumerate(threads.map(check, manifest.shards))
    return {index: problem for index, problem in problems if problem is not None}
