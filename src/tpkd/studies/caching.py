"""`tpkd cache`: a teacher's answers, or those of the student at its start, from a run's configuration."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tpkd.cache import (
    BuildProgress,
    CacheRecipe,
    CacheRows,
    VerifyReport,
    build_cache,
    cache_info,
    verify_cache,
)
from tpkd.cache.manifest import MANIFEST_NAME, damaged_shards, read_manifest
from tpkd.cache.rows import hash_keys
from tpkd.cache.shards import row_bytes
from tpkd.config import ConfigError, RunConfig, expand_data
from tpkd.data import ModelInputs
from tpkd.files import InputError
from tpkd.models import Classifier
from tpkd.training import materials

NETWORKS = ("teacher", "initial")
BLOCK_ROWS = 256
"""Rows a forward of a build."""


@dataclass(frozen=True)
class CachePlan:
    """What a build computes and where it goes."""

    directory: Path
    rows: CacheRows
    recipe: CacheRecipe
    forward: Callable[[Any], dict[str, Tensor]]
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
    dataset = materials.load_data(config, "train")
    if network == "teacher":
        if config.teacher is None:
            raise ConfigError("teacher: missing, and there is nothing to build a cache of")
        model = materials.build_teacher(config, dataset)
        preparation = materials.teacher_preparation(config, dataset)
        materials.check_inputs("teacher", str(config.teacher.model), model, dataset, preparation)
        recipe, source = materials.teacher_recipe(config, dataset, model), materials.teacher_source(config, dataset)
        place, layers, mapping = config.teacher.cache, config.teacher.layers, materials.class_map(config, dataset)
    else:
        model = materials.freeze(materials.build_student(config, dataset))
        preparation = materials.student_preparation(config, dataset)
        recipe, source = materials.initial_recipe(config, dataset, model), None
        place, layers, mapping = config.initial.cache, (), None
    if directory is None and place is None:
        raise ConfigError(f"{network}.cache: missing, and the cache needs a directory")
    forward = _forward(model, layers, mapping.apply if mapping else lambda logits: logits)
    return CachePlan(
        Path(directory or expand_data(str(place))), materials.cache_rows(dataset, preparation), recipe, forward, source
    )


def _forward(
    model: Classifier, layers: tuple[int, ...], to_classes: Callable[[Tensor], Tensor]
) -> Callable[[ModelInputs], dict[str, Tensor]]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)

    def forward(inputs: ModelInputs) -> dict[str, Tensor]:
        output = model.outputs(materials.to_device(inputs, device), layers)
        features = zip(map(materials.layer_tensor, layers), output.layer_features, strict=True)
        return {"logits": to_classes(output.logits), **dict(features)}

    return forward


def build(
    config: RunConfig, network: str = "teacher", *, on_progress: Callable[[BuildProgress], None] | None = None
) -> Path:
    """Build the cache that a configuration names, or finish it; returns its directory.

    A teacher whose cache is finished is not built.
    """
    if network == "teacher" and (finished := _finished(config)) is not None:
        if on_progress is not None:
            on_progress(finished[1])
        return finished[0]
    plan = plan_cache(config, network)
    build_cache(
        plan.directory,
        plan.rows,
        plan.forward,
        plan.recipe,
        block_rows=BLOCK_ROWS,
        model_source=plan.source,
        on_progress=on_progress,
    )
    return plan.directory


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
    dataset = materials.load_data(config, "train")
    expected = materials.known_recipe(config, dataset, manifest)
    if expected is None:
        return None
    rows = materials.cache_rows(dataset, materials.teacher_preparation(config, dataset))
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
