"""What decides the values of the caches of a run."""

from tpkd.config.loading import keyed
from tpkd.config.schema import RunConfig
from tpkd.data.batches import Preparation
from tpkd.data.dataset import Dataset
from tpkd.models.checks import check_teacher_classes
from tpkd.models.classifier import Classifier
from tpkd.models.preparation import preprocessing, student_preparation
from tpkd.models.weights import weights_fingerprint
from tpkd.teacher.cache.manifest import Manifest
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows
from tpkd.teacher.network import class_map, teacher_preparation, teacher_source


def layer_tensor(layer: int) -> str:
    """How a cache calls the pooled features of a layer."""
    return f"layer_{layer}"


def known_recipe(config: RunConfig, dataset: Dataset, manifest: Manifest) -> CacheRecipe | None:
    """The recipe of the teacher's cache without building the teacher, None where the manifest does not say enough.

    Where the cache was computed by a network from the same files and settings, that network is the teacher.
    """
    assert config.teacher is not None
    widths = {name: manifest.recipe.tensors.get(name, 0) for name in map(layer_tensor, config.teacher.layers)}
    if manifest.model_source is None or 0 in widths.values():
        return None
    if manifest.model_source != teacher_source(config, dataset):
        return None
    with keyed("teacher"):
        check_teacher_classes(config.teacher, dataset, class_map(config, dataset))
    return _teacher_recipe(config, dataset, manifest.recipe.model_fingerprint, widths)


def teacher_recipe(config: RunConfig, dataset: Dataset, model: Classifier) -> CacheRecipe:
    """What decides the values of the teacher's cache."""
    assert config.teacher is not None
    widths = {layer_tensor(layer): model.layer_sizes[layer] for layer in config.teacher.layers}
    return _teacher_recipe(config, dataset, weights_fingerprint(model), widths)


def _teacher_recipe(config: RunConfig, dataset: Dataset, fingerprint: str, widths: dict[str, int]) -> CacheRecipe:
    assert config.teacher is not None
    mapping = class_map(config, dataset)
    return CacheRecipe(
        model_fingerprint=fingerprint,
        dataset_fingerprint=dataset.fingerprint,
        preprocessing=preprocessing(dataset, teacher_preparation(config, dataset)),
        class_map=mapping.to_dict() if mapping else None,
        num_classes=dataset.num_classes,
        dtype=config.teacher.cache_dtype,
        tensors=widths,
        class_names=dataset.class_names,
    )


def initial_recipe(config: RunConfig, dataset: Dataset, model: Classifier) -> CacheRecipe:
    """What decides the values of the cache of the student at its start."""
    return CacheRecipe(
        model_fingerprint=weights_fingerprint(model),
        dataset_fingerprint=dataset.fingerprint,
        preprocessing=preprocessing(dataset, student_preparation(config, dataset)),
        class_map=None,
        num_classes=dataset.num_classes,
        dtype=config.initial.cache_dtype,
        class_names=dataset.class_names,
    )


def cache_rows(dataset: Dataset, preparation: Preparation) -> CacheRows:
    """Every sample in every view."""
    return CacheRows.of_views(
        dataset.ids, preparation.num_views, lambda positions, views: preparation.inputs(dataset, positions, views)
    )
