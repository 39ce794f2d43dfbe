"""The manifest of a cache: what it binds and how its rows are cut into shards. It is written before the first row."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from tpkd.errors import InputError
from tpkd.files import read_text, reading, write_file
from tpkd.record import Record, added
from tpkd.teacher.cache.entries import ShardEntry
from tpkd.teacher.cache.parts import Part
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows, hash_keys, hash_labels

MANIFEST_NAME = "manifest.json"
MAX_MANIFEST_BYTES = 64 << 20
"""Room for some hundred thousand shards in a manifest of an earlier version; more is not a manifest."""

_NOT_BOUND = ("schema", "fingerprint", "shard_rows", "model_source", "part")


@dataclass(frozen=True)
class Manifest(Record):
    """What is bound (recipe, keys and labels, with a fingerprint of them) and how many rows a shard has.

    Which shards are written is said by the journal beside it.
    """

    schema: ClassVar[int] = 2

    fingerprint: str
    recipe: CacheRecipe
    rows: int
    samples: int
    views: int
    keys_sha256: str
    shard_rows: int
    model_source: str | None = added(None)
    """What the network was built from: where it is as expected, the network need not be built to compare it. Of
    imported logits, the names and hashes of their files.

    Not bound: the fingerprint of the network in the recipe is.
    """
    labels_sha256: str | None = added(None)
    """Of the labels of all rows, where a row keeps its label's log-probability, and of all tokens of a text; None where
    a row keeps all logits."""
    part: Part | None = added(None)  # noqa: RUF009  (a field, as those above)
    """Which part of the cache is in this directory; None where all of it is."""

    @classmethod
    def begin(cls, rows: CacheRows, recipe: CacheRecipe, shard_rows: int, part: Part | None = None) -> "Manifest":
        """The manifest of a cache, or of a part of one, before its first shard."""
        samples, views = len(np.unique(rows.sample_ids)), len(np.unique(rows.view_ids))
        keys_sha256 = hash_keys(rows.sample_ids, rows.view_ids)
        labels_sha256 = hash_labels(rows, recipe.num_classes) if binds_labels(recipe) else None
        blank = cls("", recipe, len(rows), samples, views, keys_sha256, shard_rows, None, labels_sha256, part)
        return replace(blank, fingerprint=blank.binding_sha256())

    def binding_sha256(self) -> str:
        """SHA-256 of the binding part: recipe, keys and labels; how the rows are cut into files does not matter."""
        binding = {key: value for key, value in self.to_dict().items() if key not in _NOT_BOUND}
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
        """How many shards the finished cache has, all parts together."""
        return -(-self.rows // self.shard_rows)

    @property
    def shard_numbers(self) -> range:
        """The shards that belong into this directory: all of them, or those of the part."""
        return range(self.num_shards) if self.part is None else self.part.shards(self.num_shards)

    @property
    def row_numbers(self) -> range:
        """The rows that belong into this directory."""
        shards = self.shard_numbers
        return range(min(shards.start * self.shard_rows, self.rows), min(shards.stop * self.shard_rows, self.rows))

    def bounds(self, index: int) -> tuple[int, int]:
        """First row of a shard and the row after its last."""
        return index * self.shard_rows, min((index + 1) * self.shard_rows, self.rows)

    def differences(self, found: "Manifest") -> list[str]:
        """What another cache holds that this one does not, as `field: expected …, found …`."""
        differences = self.recipe.differences(found.recipe)
        if not differences and self.keys_sha256 != found.keys_sha256:
            differences = [f"rows: expected keys {_summary(self)}, found {_summary(found)}"]
        if not differences and self.labels_sha256 != found.labels_sha256:
            what = "labels" if self.recipe.positions is None else "tokens"
            differences = [f"{what}: expected those of the rows at hand, found others"]
        if not differences and self.part != found.part:
            differences = [f"expected {self.part or 'a whole cache'}, found {found.part or 'a whole cache'}"]
        return differences

    def publish(self, directory: Path) -> None:
        """Replace the manifest on disk."""
        write_file(directory / MANIFEST_NAME, self.to_json())


def binds_labels(recipe: CacheRecipe) -> bool:
    """Whether a cache depends on the labels of its rows: one that keeps the label's class, or the tokens themselves.

    Example:
        >>> binds_labels(CacheRecipe("m", "d", {}, None, 5)), binds_labels(CacheRecipe("m", "d", {}, None, 5, top_k=2))
        (False, True)
    """
    return recipe.top_k is not None or recipe.positions is not None


@dataclass(frozen=True)
class EarlierManifest(Record):
    """The manifest up to version 0.1, which had no journal: it was rewritten after each shard."""

    fingerprint: str
    recipe: CacheRecipe
    rows: int
    samples: int
    views: int
    keys_sha256: str
    shard_rows: int
    shards: tuple[ShardEntry, ...]
    model_source: str | None = added(None)
    labels_sha256: str | None = added(None)

    @property
    def manifest(self) -> Manifest:
        """The same without the shards."""
        return Manifest(
            self.fingerprint,
            self.recipe,
            self.rows,
            self.samples,
            self.views,
            self.keys_sha256,
            self.shard_rows,
            self.model_source,
            self.labels_sha256,
        )


def _summary(manifest: Manifest) -> str:
    return f"{manifest.keys_sha256[:12]}… of {manifest.rows} rows"


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a cache, whole and consistent.

    Raises:
        InputError: there is none, or a field of it is not what a build writes.
    """
    return read_manifest_and_shards(directory)[0]


def read_manifest_and_shards(directory: Path) -> tuple[Manifest, tuple[ShardEntry, ...] | None]:
    """The manifest of a cache, and the shards that one of an earlier version names; None where a journal names them.

    Raises:
        InputError: there is none, or a field of it is not what a build writes.
    """
    path = directory / MANIFEST_NAME
    if not path.exists():
        raise InputError(f"{directory}: expected a teacher cache, found no {MANIFEST_NAME}")
    shards = None
    with reading(path):
        data = json.loads(read_text(path, MAX_MANIFEST_BYTES))
        if isinstance(data, dict) and data.get("schema") == EarlierManifest.schema:
            earlier = EarlierManifest.from_dict(data)
            manifest, shards = earlier.manifest, earlier.shards
        else:
            manifest = Manifest.from_dict(data)
    for field, expected, found in _contradictions(manifest):
        raise InputError(f"{path}: {field}: expected {expected}, found {found!r}")
    return manifest, shards


def _contradictions(manifest: Manifest) -> Iterator[tuple[str, object, object]]:
    """Field, expected and found of everything in a manifest that no build writes."""
    if manifest.fingerprint != manifest.binding_sha256():
        yield "fingerprint", manifest.binding_sha256(), manifest.fingerprint
    if manifest.rows < 1:
        yield "rows", "at least 1", manifest.rows
    if manifest.shard_rows < 1:
        yield "shard_rows", "at least 1", manifest.shard_rows
    elif manifest.part is not None and manifest.part.total > manifest.num_shards:
        yield "part", f"at most {manifest.num_shards} parts, as many as shards", manifest.part.total
