"""Recipes of a run's caches: everything that determines their values."""

from dataclasses import replace
from typing import Any

from tpkd.config.loading import keyed
from tpkd.config.schema import RunConfig
from tpkd.data.batches import Preparation
from tpkd.data.class_map import ClassMap
from tpkd.data.dataset import Dataset
from tpkd.models.checks import check_teacher_classes
from tpkd.models.preparation import preprocessing
from tpkd.teacher.cache.manifest import Manifest
from tpkd.teacher.cache.recipe import CacheRecipe, library_versions
from tpkd.teacher.cache.rows import CacheRows
from tpkd.teacher.network import class_map, teacher_preparation, teacher_source
from tpkd.teacher.teacher import OnlineTeacher, layer_tensor


def network_recipe(
    network: OnlineTeacher, dataset: Dataset, preparation: Preparation, dtype: str, top_k: int | None = None
) -> CacheRecipe:
    """The recipe of a network's cache, truncated to the `top_k` largest classes where that is given."""
    return CacheRecipe(
        model_fingerprint=network.fingerprint,
        preprocessing=preprocessing(dataset, preparation),
        dtype=dtype,
        tensors=dict(zip(map(layer_tensor, network.layers), network.layer_sizes, strict=True)),
        top_k=_at_most_all(top_k, dataset),
        **_of_data(dataset, network.class_map),
    )


def known_recipe(config: RunConfig, dataset: Dataset, manifest: Manifest) -> CacheRecipe | None:
    """The recipe of the teacher's cache without building the teacher, None where the manifest does not say enough.

    Where the cache was computed by a network from the same files and settings, that network is the teacher.
    """
    assert config.teacher is not None
    found, mapping = manifest.recipe, class_map(config, dataset)
    names = [layer_tensor(layer) for layer in config.teacher.layers]
    if manifest.model_source is None or not found.tensors.keys() >= set(names):
        return None
    if manifest.model_source != teacher_source(config, dataset):
        return None
    with keyed("teacher"):
        check_teacher_classes(config.teacher, dataset, mapping)
    return replace(
        found,
        preprocessing=preprocessing(dataset, teacher_preparation(config, dataset)),
        dtype=config.teacher.cache_dtype,
        tensors={name: found.tensors[name] for name in names},
        versions=library_versions(),
        top_k=_at_most_all(config.teacher.top_k, dataset),
        **_of_data(dataset, mapping),
    )


def unnamed_recipe(config: RunConfig, dataset: Dataset, found: CacheRecipe) -> CacheRecipe:
    """The expected recipe of a cache whose network the configuration does not name.

    Such a cache is taken with all logits or truncated, as it is, unless the configuration says how many it keeps.
    """
    assert config.teacher is not None
    top_k = found.top_k if config.teacher.top_k is None else _at_most_all(config.teacher.top_k, dataset)
    # Size and normalisation belong to the network; which window a view shows belongs to the run.
    windows = config.views.model_dump(include={"num_views", "seed", "pad", "flip"}) if dataset.kind == "image" else {}
    return replace(
        found,
        preprocessing=found.preprocessing | windows,
        top_k=top_k,
        **_of_data(dataset, class_map(config, dataset)),
    )


def _at_most_all(top_k: int | None, dataset: Dataset) -> int | None:
    """One configuration may serve several data sets: where there are fewer classes, all of them are kept."""
    return None if top_k is None else min(top_k, dataset.num_classes)


def _of_data(dataset: Dataset, mapping: ClassMap | None) -> dict[str, Any]:
    return {
        "dataset_fingerprint": dataset.fingerprint,
        "class_map": mapping.to_dict() if mapping else None,
        "num_classes": dataset.num_classes,
        "class_names": dataset.class_names,
    }


def cache_rows(dataset: Dataset, preparation: Preparation) -> CacheRows:
    """Every sample in every view."""
    return CacheRows.of_views(
        dataset.ids,
        preparation.num_views,
        lambda positions, views: preparation.inputs(dataset, positions, views),
        dataset.labels if dataset.labelled else None,
    )
