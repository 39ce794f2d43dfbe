"""`tpkd cache`: a teacher's answers, or those of the student at its start, from a run's configuration."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tpkd.competence.counts import AnswerCounts
from tpkd.competence.reading import competence_sentences
from tpkd.config.loading import ConfigError, expand_data
from tpkd.config.schema import RunConfig
from tpkd.data.batches import ModelInputs, Preparation
from tpkd.data.configured import load_data
from tpkd.data.dataset import Dataset
from tpkd.data.order import SampleOrder
from tpkd.data.slicing import to_device
from tpkd.errors import InputError
from tpkd.models.checks import check_inputs
from tpkd.models.classifier import Classifier, freeze
from tpkd.models.preparation import student_preparation
from tpkd.models.student import build_student
from tpkd.teacher.cache.build import BuildProgress, build_cache
from tpkd.teacher.cache.manifest import MANIFEST_NAME, damaged_shards, read_manifest
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows, hash_keys
from tpkd.teacher.cache.shards import row_bytes
from tpkd.teacher.cache.verify import VerifyReport, cache_info, verify_cache
from tpkd.teacher.network import build_teacher, class_map, teacher_preparation, teacher_source
from tpkd.teacher.recipes import cache_rows, initial_recipe, known_recipe, layer_tensor, teacher_recipe

NETWORKS = ("teacher", "initial")
BLOCK_ROWS = 256
"""Rows a forward of a build."""
SAMPLE = 256
"""Training samples on which a teacher is looked at before its cache is built."""

MEASURED_ROWS = 8192
"""Cached rows in memory at a time while they are looked at."""

OnNote = Callable[[str], None]
"""Called with a sentence for people."""


@dataclass(frozen=True)
class CachePlan:
    """What a build computes and where it goes."""

    directory: Path
    rows: CacheRows
    recipe: CacheRecipe
    forward: Callable[[Any], dict[str, Tensor]]
    dataset: Dataset
    preparation: Preparation
    source: str | None
    """What the network was built from."""


def plan_cache(config: RunConfig, network: str = "teacher", *, directory: str | Path | None = None) -> CachePlan:
    """What the cache of a configuration holds: every training sample in every view.

    Args:
        config: the run that will read the cache.
        network: `"teacher"`, or `"initial"` for the student at its start, which DP-U and DP-S ask for.
        directory: where it goes, by default what the configuration says.

    Raises:
        InputError: the configuration names no such cache or network, or a file of it is not as it must be.
    """
    if network not in NETWORKS:
        raise InputError(f"network: expected {' or '.join(NETWORKS)}, found {network!r}")
    dataset = load_data(config, "train")
    if network == "teacher":
        if config.teacher is None:
            raise ConfigError("teacher: missing, and there is nothing to build a cache of")
        model = build_teacher(config, dataset)
        preparation = teacher_preparation(config, dataset)
        check_inputs("teacher", str(config.teacher.model), model, dataset, preparation)
        recipe, source = teacher_recipe(config, dataset, model), teacher_source(config, dataset)
        place, layers, mapping = config.teacher.cache, config.teacher.layers, class_map(config, dataset)
    else:
        model = freeze(build_student(config, dataset))
        preparation = student_preparation(config, dataset)
        recipe, source = initial_recipe(config, dataset, model), None
        place, layers, mapping = config.initial.cache, (), None
    if directory is None and place is None:
        raise ConfigError(f"{network}.cache: missing, and the cache needs a directory")
    forward = _forward(model, layers, mapping.apply if mapping else lambda logits: logits)
    rows, target = cache_rows(dataset, preparation), Path(directory or expand_data(str(place)))
    return CachePlan(target, rows, recipe, forward, dataset, preparation, source)


def _forward(
    model: Classifier, layers: tuple[int, ...], to_classes: Callable[[Tensor], Tensor]
) -> Callable[[ModelInputs], dict[str, Tensor]]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)

    def forward(inputs: ModelInputs) -> dict[str, Tensor]:
        output = model.outputs(to_device(inputs, device), layers)
        features = zip(map(layer_tensor, layers), output.layer_features, strict=True)
        return {"logits": to_classes(output.logits), **dict(features)}

    return forward


def build(
    config: RunConfig,
    network: str = "teacher",
    *,
    on_progress: Callable[[BuildProgress], None] | None = None,
    on_note: OnNote = lambda sentence: None,
) -> Path:
    """Build the cache that a configuration names, or finish it; returns its directory.

    A teacher whose cache is finished is not built.

    Args:
        config: the run that will read the cache.
        network: as in `plan_cache`.
        on_progress: told how far the build is.
        on_note: told how often the teacher is right: on some samples and beside the student at its start before the
            build, and on all cached rows after it.
    """
    if network == "teacher" and (finished := _finished(config)) is not None:
        if on_progress is not None:
            on_progress(finished[1])
        note_cached_teacher(finished[0], load_data(config, "train"), on_note)
        return finished[0]
    plan = plan_cache(config, network)
    if network == "teacher":
        note_teacher_sample(config, plan, on_note)
    build_cache(
        plan.directory,
        plan.rows,
        plan.forward,
        plan.recipe,
        block_rows=BLOCK_ROWS,
        model_source=plan.source,
        on_progress=on_progress,
    )
    if network == "teacher":
        note_cached_teacher(plan.directory, plan.dataset, on_note)
    return plan.directory


@torch.no_grad()
def note_teacher_sample(config: RunConfig, plan: CachePlan, on_note: OnNote) -> None:
    """Say how often the teacher is right on some training samples, and how often the student at its start is.

    The samples are the first of the order of seed 0, the same every time, in their first view.
    """
    dataset = plan.dataset
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
    for sentence in competence_sentences(counts.finish(), "training samples"):
        on_note(sentence)


def _student_logits(config: RunConfig, dataset: Dataset, positions: Any, views: Any) -> Tensor | None:
    """What the student says at its start; None where a probe would have to be fitted first."""
    student = config.student
    if student.head == "probe" and not (student.probe_file and Path(expand_data(student.probe_file)).exists()):
        return None
    model = freeze(build_student(config, dataset))
    logits: Tensor = model(student_preparation(config, dataset).inputs(dataset, positions, views))
    return logits


def note_cached_teacher(directory: Path, dataset: Dataset, on_note: OnNote) -> None:
    """Say how often a teacher is right in all rows of its cache."""
    cache = open_cache(directory, check=False)
    places = {int(sample): label for sample, label in zip(dataset.ids, dataset.labels, strict=True)}
    labels = torch.tensor([places[int(sample)] for sample in cache.sample_ids])
    counts, start = AnswerCounts(dataset.num_classes), 0
    for block in cache.array(cache.sample_ids, cache.view_ids).blocks(MEASURED_ROWS):
        counts.add(block, labels[start : start + len(block)])
        start += len(block)
    for sentence in competence_sentences(counts.finish(), "cached rows"):
        on_note(sentence)


def _finished(config: RunConfig) -> tuple[Path, BuildProgress] | None:
    """Directory and state of a teacher's cache that is whole, undamaged and this teacher's."""
    teacher = config.teacher
    if teacher is None or teacher.model is None or teacher.cache is None:
        return None
    directory = Path(expand_data(teacher.cache))
    if not (directory / MANIFEST_NAME).exists():
        return None
    manifest = read_manifest(directory)
    if manifest.rows_written != manifest.rows:
        return None
    dataset = load_data(config, "train")
    expected = known_recipe(config, dataset, manifest)
    if expected is None:
        return None
    rows = cache_rows(dataset, teacher_preparation(config, dataset))
    if expected.differences(manifest.recipe) or hash_keys(rows.sample_ids, rows.view_ids) != manifest.keys_sha256:
        return None
    if damaged_shards(directory, manifest):
        return None
    return directory, BuildProgress(len(rows), len(rows), len(rows) * row_bytes(expected), None)


def verify(
    directory: str | Path, config: RunConfig | None = None, network: str = "teacher", *, sample: int = 32
) -> VerifyReport:
    """Check the bytes of a cache and, with a configuration at hand, its recipe and a sample of its rows.

    Raises:
        InputError: there is no cache, or it was computed from something else than the configuration says.
    """
    if config is None:
        return verify_cache(directory)
    plan = plan_cache(config, network, directory=directory)
    differences = plan.recipe.differences(cache_info(directory).recipe)
    if differences:
        raise InputError(f"{directory}: this cache was computed from something else: {'; '.join(differences)}")
    return verify_cache(directory, forward=plan.forward, rows=plan.rows, sample=sample)
