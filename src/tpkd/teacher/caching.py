"""`tpkd cache`: build and verify the caches of a run: of its teacher, or of the student's initial state."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tpkd.competence.counts import AnswerCounts
from tpkd.competence.reading import competence_sentences
from tpkd.config.loading import ConfigError, expand_data
from tpkd.config.schema import InitialConfig, RunConfig, TeacherConfig
from tpkd.data.batches import ModelInputs, Preparation
from tpkd.data.configured import load_data
from tpkd.data.dataset import Dataset
from tpkd.data.order import SampleOrder
from tpkd.data.slicing import to_device
from tpkd.errors import InputError
from tpkd.geometry.top_k import TopK
from tpkd.models.preparation import student_preparation
from tpkd.models.student import build_student
from tpkd.teacher.cache.build import BuildProgress, build_cache
from tpkd.teacher.cache.contents import read_contents
from tpkd.teacher.cache.description import kept_sentence
from tpkd.teacher.cache.manifest import MANIFEST_NAME
from tpkd.teacher.cache.parts import Part
from tpkd.teacher.cache.read import TeacherCache, open_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.remote import refuse_writing
from tpkd.teacher.cache.rows import CacheRows, hash_keys
from tpkd.teacher.cache.shards import SHARD_BYTES, row_bytes
from tpkd.teacher.cache.verify import VerifyReport, cache_info, verify_cache
from tpkd.teacher.network import build_teacher, teacher_preparation, teacher_source
from tpkd.teacher.recipes import cache_rows, known_recipe, network_recipe, unnamed_recipe
from tpkd.teacher.several import each_alone, keyed_as
from tpkd.teacher.teacher import OnlineTeacher

NETWORKS = ("teacher", "initial")
BLOCK_ROWS = 256
"""Rows per forward pass of a build."""
SAMPLE = 256
"""Training samples on which a teacher's accuracy is measured before its cache is built."""

MEASURED_ROWS = 8192
"""Cached rows held in memory at a time while accuracy is measured."""

OnNote = Callable[[str], None]
"""Called with a sentence for the user."""


def noted(key: str, on_note: OnNote) -> OnNote:
    """Notes about one of several teachers, which begin with its key.

    Example:
        >>> noted("teachers.1", print)("The teacher is right.")
        teachers.1: The teacher is right.
    """
    return on_note if key == "teacher" else lambda sentence: on_note(f"{key}: {sentence}")


@dataclass(frozen=True)
class CachePlan:
    """What a build computes and where it goes."""

    directory: Path
    rows: CacheRows
    recipe: CacheRecipe
    network: OnlineTeacher
    dataset: Dataset
    preparation: Preparation
    source: str | None
    """What the network was built from."""

    def forward(self, inputs: ModelInputs) -> dict[str, Tensor]:
        """What the network says, by the names of the recipe."""
        found = self.network.answer(to_device(inputs, _device()), with_layers=True)
        logits = found.all_logits("cache")
        return dict(zip(self.recipe.outputs, (logits, *found.layer_features), strict=True))


def plan_cache(config: RunConfig, network: str = "teacher", *, directory: str | Path | None = None) -> CachePlan:
    """What the cache of a configuration holds: every training sample in every view.

    Args:
        config: the run that will read the cache.
        network: `"teacher"`, or `"initial"` for the student at its start, which DP-U and DP-S ask for.
        directory: where it goes, by default what the configuration says.

    Raises:
        InputError: the configuration names no such cache or network, or one of its files is invalid.
    """
    if network not in NETWORKS:
        raise InputError(f"network: expected {' or '.join(NETWORKS)}, found {network!r}")
    dataset = load_data(config, "train")
    section: TeacherConfig | InitialConfig | None
    top_k = None  # objectives compare all classes with those of the initial student
    if network == "teacher":
        section = config.teacher
        if section is None:
            raise ConfigError("teacher: missing, and there is nothing to build a cache of")
        asked, source, top_k = build_teacher(config, dataset), teacher_source(config, dataset), section.top_k
        preparation = teacher_preparation(config, dataset)
    else:
        section = config.initial
        asked, source = OnlineTeacher(build_student(config, dataset)), None
        preparation = student_preparation(config, dataset)
    if directory is None and section.cache is None:
        raise ConfigError(f"{network}.cache: missing, and the cache needs a directory")
    target = Path(directory or expand_data(str(section.cache)))
    recipe = network_recipe(asked, dataset, preparation, section.cache_dtype, top_k)
    rows = cache_rows(dataset, preparation)
    return CachePlan(target, rows, recipe, asked.to(_device()), dataset, preparation, source)


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def build(
    config: RunConfig,
    network: str = "teacher",
    *,
    part: Part | None = None,
    shard_bytes: int = SHARD_BYTES,
    on_progress: Callable[[BuildProgress], None] | None = None,
    on_note: OnNote = lambda sentence: None,
) -> Path:
    """Build the cache that a configuration names, or finish it; returns its directory.

    A teacher whose cache is finished is not built.

    Args:
        config: the run that will read the cache.
        network: as in `plan_cache`.
        part: build this part alone, in a directory beside that of the cache; `merge_parts` joins all of them.
        shard_bytes: the most that a file of a new cache takes.
        on_progress: told how far the build is.
        on_note: told how often the teacher is right: on some samples and beside the student at its start before the
            build, and on all cached rows after it, unless they are those of a part; and before the build what a
            truncated cache keeps.
    """
    if network == "teacher" and config.teacher is not None and config.teacher.cache is not None:
        refuse_writing("teacher.cache", config.teacher.cache)
    if network == "teacher" and (finished := _finished(config, part)) is not None:
        if on_progress is not None:
            rows = len(finished)
            on_progress(BuildProgress(rows, rows, rows * row_bytes(finished.recipe), None))
        if part is None:
            note_cached_teacher(finished.directory, load_data(config, "train"), on_note)
        return finished.directory
    plan = plan_cache(config, network)
    directory = plan.directory if part is None else part.place(plan.directory)
    if network == "teacher":
        note_teacher_sample(config, plan, on_note)
    if plan.recipe.top_k is not None:
        on_note(kept_sentence(plan.recipe, len(plan.rows)))
    build_cache(
        directory,
        plan.rows,
        plan.forward,
        plan.recipe,
        part=part,
        shard_bytes=shard_bytes,
        block_rows=BLOCK_ROWS,
        model_source=plan.source,
        on_progress=on_progress,
    )
    if network == "teacher" and part is None:
        note_cached_teacher(directory, plan.dataset, on_note)
    return directory


def build_all(
    config: RunConfig,
    network: str = "teacher",
    *,
    on_note: OnNote = lambda sentence: None,
    **options: Any,
) -> tuple[Path, ...]:
    """`build` for every teacher of a configuration, one after the other; returns their directories.

    Args:
        config: the run that will read the caches.
        network: as in `plan_cache`.
        on_note: as in `build`; of several teachers, a sentence begins with whose it is.
        options: of `build`.
    """
    built = []
    for key, alone in to_build(config, network):
        with keyed_as(key):
            built.append(build(alone, network, on_note=noted(key, on_note), **options))
    return tuple(built)


def to_build(config: RunConfig, network: str) -> list[tuple[str, RunConfig]]:
    """The configurations of the caches to build, each with the key of its network.

    Of several teachers each has a cache of its own; one without a model has it already.

    Raises:
        ConfigError: there is nothing to compute, or a directory is missing.
    """
    if network != "teacher" or not config.teachers:
        return [("teacher", config)]  # messages name its own keys
    with_models = [(key, alone) for key, alone in each_alone(config) if alone.teacher and alone.teacher.model]
    if not with_models:
        raise ConfigError("teachers: expected a model of at least one, found none: there is nothing to compute")
    for key, teacher in config.named_teachers:
        if teacher.cache is None:
            raise ConfigError(f"{key}.cache: missing, and every teacher needs a directory of its own")
    return with_models


@torch.no_grad()
def note_teacher_sample(config: RunConfig, plan: CachePlan, on_note: OnNote) -> None:
    """Say how often the teacher is right on some training samples, and how often the student at its start is.

    The samples are the first of the order of seed 0, the same every time, in their first view; of the test split where
    training samples have no labels.
    """
    dataset = plan.dataset if plan.dataset.labelled else load_data(config, "test")
    positions, _ = SampleOrder(0, len(dataset)).positions(0, min(SAMPLE, len(dataset)))
    positions, views = np.sort(positions), np.zeros(len(positions), np.int64)
    labels, counts = torch.from_numpy(dataset.labels[positions]), AnswerCounts(dataset.num_classes)
    teacher = plan.forward(plan.preparation.inputs(dataset, positions, views))["logits"].cpu()
    try:
        student = _student_logits(config, dataset, positions, views)
    except InputError as error:  # a cache can be built before there is a student
        on_note(f"The student is not compared: {error}")
        student = None
    counts.add(teacher, labels, student)
    words = "training samples" if plan.dataset.labelled else "test samples"
    for sentence in competence_sentences(counts.finish(), words):
        on_note(sentence)


def _student_logits(config: RunConfig, dataset: Dataset, positions: Any, views: Any) -> Tensor | None:
    """What the student says at its start; None where a probe would have to be fitted first."""
    student = config.student
    if student.head == "probe" and not (student.probe_file and Path(expand_data(student.probe_file)).exists()):
        return None
    inputs = student_preparation(config, dataset).inputs(dataset, positions, views)
    return OnlineTeacher(build_student(config, dataset))(inputs)


def note_cached_teacher(directory: Path, dataset: Dataset, on_note: OnNote) -> None:
    """Say how often a teacher is right in all rows of its cache; nothing where the samples have no labels."""
    if not dataset.labelled:
        return
    cache, counts = open_cache(directory, check=False), AnswerCounts(dataset.num_classes)
    order = dataset.ids.argsort()
    for samples, views in cache.key_blocks(MEASURED_ROWS):
        found = order[np.minimum(dataset.ids.searchsorted(samples, sorter=order), len(order) - 1)]
        assert (dataset.ids[found] == samples).all(), "the recipe binds the data"
        labels = dataset.labels[found]
        (block,) = cache.blocks(MEASURED_ROWS, samples, views)
        # Truncation keeps the largest class first, the label's too where it is the largest.
        said = block.indices[:, 0] if isinstance(block, TopK) else block.argmax(-1)
        counts.add_classes(said, torch.from_numpy(labels))
    for sentence in competence_sentences(counts.finish(), "cached rows"):
        on_note(sentence)


def _finished(config: RunConfig, part: Part | None) -> TeacherCache | None:
    """A teacher's cache, or a part of one, that is whole, undamaged and known to be its own without building it."""
    teacher = config.teacher
    if teacher is None or teacher.model is None or teacher.cache is None:
        return None
    whole = Path(expand_data(teacher.cache))
    directory = whole if part is None else part.place(whole)
    if not (directory / MANIFEST_NAME).exists():
        return None
    contents = read_contents(directory)
    dataset = load_data(config, "train")
    expected = known_recipe(config, dataset, contents.manifest)
    if expected is None or not contents.complete or contents.manifest.part != part:
        return None
    rows = cache_rows(dataset, teacher_preparation(config, dataset))
    with suppress(InputError):
        cache = open_cache(directory, expected=expected, partial=part is not None)
        if hash_keys(rows.sample_ids, rows.view_ids) == cache.manifest.keys_sha256:
            return cache
    return None


def verify(
    directory: str | Path, config: RunConfig | None = None, network: str = "teacher", *, sample: int = 32
) -> VerifyReport:
    """Check the bytes of a cache and, with a configuration at hand, its recipe and a sample of its rows.

    Without a model of the teacher there is nothing to compute rows with.

    Raises:
        InputError: there is no cache, or it was computed from something else than the configuration says.
    """
    if config is None:
        return verify_cache(directory)
    key, config = _owner(Path(directory), config) if network == "teacher" else (network, config)
    found = cache_info(directory).recipe
    with keyed_as(key):
        if network == "teacher" and config.teacher is not None and config.teacher.model is None:
            expected, plan = unnamed_recipe(config, load_data(config, "train"), found), None
        else:
            plan = plan_cache(config, network, directory=directory)
            expected = plan.recipe
    differences = expected.differences(found)
    if differences:
        raise InputError(f"{directory}: this cache was computed from something else: {'; '.join(differences)}")
    if plan is None:
        return verify_cache(directory)
    return verify_cache(directory, forward=plan.forward, rows=plan.rows, sample=sample)


def _owner(directory: Path, config: RunConfig) -> tuple[str, RunConfig]:
    """The run with the teacher that a cache belongs to, and the key of that teacher."""
    if not config.teachers:
        return "teacher", config
    for key, alone in each_alone(config):
        cache = alone.teacher.cache if alone.teacher else None
        if cache is not None and Path(expand_data(cache)).resolve() == directory.resolve():
            return key, alone
    caches = ", ".join(teacher.cache for teacher in config.teachers if teacher.cache) or "none"
    raise InputError(f"{directory}: expected the cache of one of the teachers, found that they have {caches}")
