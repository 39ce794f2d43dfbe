"""From a file of logits to a cache that a run takes as its teacher."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tpkd.config.loading import ConfigError, expand_data, keyed
from tpkd.config.schema import RunConfig
from tpkd.data.configured import load_data
from tpkd.data.dataset import Dataset
from tpkd.diagnosis.top_k_file import is_top_k_file
from tpkd.errors import InputError
from tpkd.files import sha256
from tpkd.importing.largest import LargestSource
from tpkd.importing.logits import LogitsSource
from tpkd.importing.samples import Positions, find_samples
from tpkd.importing.source import Source
from tpkd.models.preparation import student_preparation
from tpkd.teacher.cache.build import BuildProgress, build_cache
from tpkd.teacher.cache.description import kept_sentence
from tpkd.teacher.cache.manifest import MANIFEST_NAME
from tpkd.teacher.cache.recipe import IMPORTED, CacheRecipe, is_imported
from tpkd.teacher.cache.rows import CacheRows
from tpkd.teacher.cache.verify import cache_info
from tpkd.teacher.caching import OnNote, note_cached_teacher
from tpkd.teacher.network import class_map
from tpkd.teacher.recipes import unnamed_recipe
from tpkd.teacher.several import each_alone, keyed_as

BLOCK_ROWS = 1024


@dataclass(frozen=True)
class Imported:
    """A cache, and whether it was there already."""

    directory: Path
    was_complete: bool


def import_logits(
    config: RunConfig,
    logits: Path,
    ids: Path | None = None,
    *,
    teacher: int | None = None,
    on_progress: Callable[[BuildProgress], None] | None = None,
    on_note: OnNote = lambda sentence: None,
) -> Imported:
    """Write the cache that `teacher.cache` names from a file of logits; a run then needs no model of the teacher.

    The cache is bound to the data, their views and their classes as a built one is, and to the bytes of the file. All
    values are looked at before anything is written. An import that was interrupted continues; a cache of anything else
    is refused, never overwritten.

    Args:
        config: the run that will read the cache.
        logits: logits or log-probabilities of the training samples, `(N, K)` or `(N, views, K)`, in a format of
            `tpkd.arrays.open_array`; or the fields of a `TopK` as arrays of one file.
        ids: the samples of the rows, one id for each; by default ids in the file itself, or else the order of the data.
        teacher: which of several teachers of the configuration.
        on_progress: told how far the import is.
        on_note: told how often the teacher is right on what was imported, and what was left out.

    Raises:
        InputError: names the key, file or row that is not as it must be.
    """
    key, config = _choose_teacher(config, teacher)
    with keyed_as(key):
        directory = _target(config)
        dataset = load_data(config, "train")
        source = _open(config, dataset, logits)
        positions = find_samples(logits, source.rows, ids, dataset)
        recipe = _recipe(config, dataset, source, (logits, ids))
        rows = _rows(source, positions, dataset)
    was_complete = _is_complete(directory, recipe)
    if not was_complete:
        source.check(positions, recipe.dtype)
    if left_out := int((positions < 0).sum()):
        on_note(f"{left_out} of {source.rows} rows belong to no training sample and are left out.")
    if recipe.top_k is not None:
        on_note(kept_sentence(recipe, len(rows)))
    build_cache(
        directory,
        rows,
        dict,
        recipe,
        block_rows=BLOCK_ROWS,
        model_source=_described(logits, ids),
        on_progress=on_progress,
    )
    note_cached_teacher(directory, dataset, on_note)
    return Imported(directory, was_complete)


def _choose_teacher(config: RunConfig, number: int | None) -> tuple[str, RunConfig]:
    """The run with the teacher that the logits are of, and its key."""
    alone = each_alone(config)
    if not alone:
        raise ConfigError("teacher: missing, and teacher.cache says where the cache goes")
    if len(alone) == 1 and number in (None, 0):
        return alone[0]
    if number is None or not 0 <= number < len(alone):
        found = "none" if number is None else number
        raise InputError(f"--teacher: expected the number of a teacher from 0 to {len(alone) - 1}, found {found}")
    return alone[number]


def _target(config: RunConfig) -> Path:
    assert config.teacher is not None
    if config.teacher.model is not None:
        raise ConfigError(
            f"teacher.model: expected none beside imported logits, found {config.teacher.model}: nothing shows that "
            "they are its own; leave model, options and weights out"
        )
    assert config.teacher.cache is not None, "the schema asks for a model, a cache or both"
    return Path(expand_data(config.teacher.cache))


def _open(config: RunConfig, dataset: Dataset, path: Path) -> Source:
    kind = LargestSource if is_top_k_file(path) else LogitsSource
    return kind(path, dataset, student_preparation(config, dataset).num_views, class_map(config, dataset))


def _recipe(config: RunConfig, dataset: Dataset, source: Source, files: tuple[Path, Path | None]) -> CacheRecipe:
    """What a run with this configuration expects of the cache; the place of the network is taken by the files."""
    assert config.teacher is not None
    if config.teacher.layers:
        raise ConfigError("teacher.layers: expected none, because imported logits have no features of layers")
    digests = [None if file is None else sha256(file) for file in files]
    fingerprint = f"{IMPORTED}{hashlib.sha256(json.dumps(digests).encode()).hexdigest()}"
    with keyed("teacher"):
        found = CacheRecipe(
            model_fingerprint=fingerprint,
            dataset_fingerprint=dataset.fingerprint,
            preprocessing={},
            class_map=None,
            num_classes=dataset.num_classes,
            dtype=config.teacher.cache_dtype,
            versions={},  # nothing was computed with them
            top_k=source.top_k,
        )
        recipe = unnamed_recipe(config, dataset, found)
    if recipe.top_k is not None and not dataset.labelled:
        problem = "a truncated cache keeps the label's class, and the training samples have no labels"
        raise ConfigError(f"data.unlabelled: expected all classes in {source.path}, found some: {problem}")
    if source.top_k is not None and recipe.top_k != source.top_k:
        raise ConfigError(f"teacher.top_k: expected {source.top_k} as in {source.path}, found {recipe.top_k}")
    return recipe


def _rows(source: Source, positions: Positions, dataset: Dataset) -> CacheRows:
    """The rows of the cache in the order of the file, so that it is read once, from the first row to the last."""
    samples = positions[positions >= 0].repeat(source.num_views)
    view_ids = np.tile(np.arange(source.num_views), (positions >= 0).sum())
    labels = dataset.labels[samples] if dataset.labelled else None
    return CacheRows(dataset.ids[samples], view_ids, source.stream(positions).read, labels)


def _is_complete(directory: Path, recipe: CacheRecipe) -> bool:
    """Whether these files were imported before, to the last row; another cache is refused before any work is done."""
    if not (directory / MANIFEST_NAME).exists():
        return False
    found = cache_info(directory)
    if differences := recipe.differences(found.recipe):
        origin = f" imported from {found.model_source}" if is_imported(found.recipe) else ""
        way_out = "nothing is overwritten: take another directory, or remove this one"
        raise InputError(f"{directory}: holds another cache{origin}: {'; '.join(differences)}; {way_out}")
    return found.complete


def _described(logits: Path, ids: Path | None) -> str:
    """The files of an import as the manifest keeps them: names without folders, and hashes."""
    return "; ids ".join(f"{file.name} SHA-256 {sha256(file)}" for file in (logits, ids) if file is not None)
