"""Networks that answer and never learn: the teacher and the student's own start, from a cache or run at every step."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tpkd.arrays import open_array
from tpkd.class_names import check_class_names
from tpkd.config.loading import ConfigError, expand_data, keyed
from tpkd.config.schema import RunConfig
from tpkd.data.batches import ModelInputs, Preparation
from tpkd.data.class_map import ClassMap
from tpkd.data.dataset import Dataset
from tpkd.errors import InputError
from tpkd.models.checks import check_inputs
from tpkd.models.classifier import Classifier, freeze
from tpkd.models.preparation import preprocessing
from tpkd.models.weights import weights_fingerprint
from tpkd.teacher.cache.manifest import MANIFEST_NAME, read_manifest
from tpkd.teacher.cache.read import TeacherCache, open_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.network import build_teacher, class_map, teacher_preparation, teacher_source
from tpkd.teacher.recipes import initial_recipe, known_recipe, layer_tensor, teacher_recipe


@dataclass(frozen=True)
class Answers:
    """What a frozen network says about a batch, without a graph."""

    logits: Tensor
    layer_features: tuple[Tensor, ...]


class FrozenModel(ABC):
    """A source of answers. It holds no module that a wrapper, an optimiser or a checkpoint could find."""

    fingerprint: str
    """What a checkpoint keeps instead of the network."""
    layer_sizes: tuple[int, ...]
    """None where a cache was built without features of layers."""
    dtype: torch.dtype
    """What its answers are rounded to: float16 or float32 in a cache, float32 where the network runs."""
    remark: str = ""
    """What the log of a run says about where the answers come from."""

    @abstractmethod
    def answer(
        self, inputs: ModelInputs, sample_ids: Tensor, view_ids: Tensor, *, with_layers: bool = False
    ) -> Answers:
        """What it says about these samples in these views; features of layers only where asked for."""


class CachedModel(FrozenModel):
    """Answers from a cache: the network does not run."""

    def __init__(self, cache: TeacherCache, layers: tuple[int, ...], device: torch.device) -> None:
        """Read logits and, where the cache holds them all, the features of these layers."""
        self._cache, self._device = cache, device
        names = [layer_tensor(layer) for layer in layers]
        self._names = names if cache.recipe.tensors.keys() >= set(names) else []
        self.fingerprint = cache.answers_sha256
        self.layer_sizes = tuple(cache.recipe.tensors[name] for name in self._names)
        self.dtype = getattr(torch, cache.recipe.dtype)

    def answer(
        self, inputs: ModelInputs, sample_ids: Tensor, view_ids: Tensor, *, with_layers: bool = False
    ) -> Answers:
        """Rows of the cache."""
        samples, views = sample_ids.numpy(), view_ids.numpy()
        names = self._names if with_layers else ()
        features = (self._cache.read_tensor(name, samples, views).to(self._device) for name in names)
        return Answers(self._cache.read(samples, views).to(self._device), tuple(features))


class OnlineModel(FrozenModel):
    """Answers computed at every step."""

    def __init__(self, model: Classifier, layers: tuple[int, ...], mapping: ClassMap | None) -> None:
        """Ask this network, whose parameters are frozen already."""
        self._model, self._layers, self._map = model, layers, mapping
        self.fingerprint = weights_fingerprint(model)
        self.layer_sizes = tuple(model.layer_sizes[layer] for layer in layers)
        self.dtype = torch.float32

    def answer(
        self, inputs: ModelInputs, sample_ids: Tensor, view_ids: Tensor, *, with_layers: bool = False
    ) -> Answers:
        """One forward pass in evaluation mode."""
        with torch.no_grad():  # not inference mode: its tensors may not enter a graph, and a loss multiplies with them
            output = self._model.outputs(inputs, self._layers if with_layers else ())
        logits = output.logits if self._map is None else self._map.apply(output.logits)
        return Answers(logits, output.layer_features)


def open_teacher(
    config: RunConfig, dataset: Dataset, preparation: Preparation, device: torch.device
) -> FrozenModel | None:
    """The configured teacher, None where there is none.

    Raises:
        InputError: the cache was computed from something else, is unfinished or damaged, or misses a row.
    """
    teacher = config.teacher
    if teacher is None:
        return None
    if teacher.cache is None:
        own = teacher_preparation(config, dataset)
        if preprocessing(dataset, own) != preprocessing(dataset, preparation):
            raise ConfigError("teacher.cache: missing, and needed because the teacher sees other inputs")
        model = build_teacher(config, dataset)
        check_inputs("teacher", str(teacher.model), model, dataset, own)
        return OnlineModel(model.to(device), teacher.layers, class_map(config, dataset))
    with keyed("teacher.cache"):
        directory = _built(teacher.cache, "tpkd cache build")
        if teacher.model is None:
            expected = _unnamed_recipe(config, dataset, open_cache(directory, check=False).recipe)
            return CachedModel(_open_whole(directory, expected, dataset, preparation), teacher.layers, device)
        known = known_recipe(config, dataset, read_manifest(directory))
        expected = known or teacher_recipe(config, dataset, build_teacher(config, dataset))
        cached = CachedModel(_open_whole(directory, expected, dataset, preparation), teacher.layers, device)
    if known is None:
        cached.remark = f"the teacher was built to check its cache: {_unknown(config, dataset)}"
    return cached


def _unknown(config: RunConfig, dataset: Dataset) -> str:
    """Why a manifest did not say enough to do without the teacher."""
    if teacher_source(config, dataset) is None:
        return "no local file says what it is; teacher.weights may name one"
    return "the manifest does not know its files and settings as they are now; `tpkd cache build` adds them"


def _unnamed_recipe(config: RunConfig, dataset: Dataset, found: CacheRecipe) -> CacheRecipe:
    """What can be expected of a cache whose network the configuration does not name."""
    assert config.teacher is not None
    mapping = class_map(config, dataset)
    # Size and normalisation belong to the network; which window a view shows belongs to the run.
    windows = config.views.model_dump(include={"num_views", "seed", "pad", "flip"}) if dataset.kind == "image" else {}
    return replace(
        found,
        dataset_fingerprint=dataset.fingerprint,
        preprocessing=found.preprocessing | windows,
        class_map=mapping.to_dict() if mapping else None,
        num_classes=dataset.num_classes,
        class_names=dataset.class_names,
    )


def open_initial(
    config: RunConfig, dataset: Dataset, preparation: Preparation, student: Classifier, device: torch.device
) -> FrozenModel:
    """The student at its start; `student` is a copy that belongs to the result."""
    freeze(student)
    if config.initial.cache is None:
        return OnlineModel(student.to(device), (), None)
    with keyed("initial.cache"):
        expected = initial_recipe(config, dataset, student)
        directory = _built(config.initial.cache, "tpkd cache build --network initial")
        cache = _open_whole(directory, expected, dataset, preparation)
        return CachedModel(cache, (), device)


def _built(place: str, command: str) -> Path:
    directory = Path(expand_data(place))
    if not (directory / MANIFEST_NAME).exists():
        raise InputError(f"{directory}: expected a cache, found no {MANIFEST_NAME}; `{command}` writes it")
    return directory


def _open_whole(directory: Path, expected: CacheRecipe, dataset: Dataset, preparation: Preparation) -> TeacherCache:
    cache = open_cache(directory, expected=expected)
    views = preparation.num_views
    # Before the first step rather than at the first step that needs the row.
    cache.locate(np.repeat(dataset.ids, views), np.tile(np.arange(views), len(dataset)))
    return cache


def given_test_logits(config: RunConfig, test: Dataset) -> Tensor:
    """The answers of a teacher without a model to the test split, `(N, K)` in float32, from `teacher.test_logits`."""
    assert config.teacher is not None
    assert config.teacher.test_logits is not None
    file = config.teacher.test_logits
    with keyed("teacher.test_logits"):
        array = open_array(expand_data(file))
        if tuple(array.shape) != (len(test), test.num_classes):
            raise InputError(f"{file}: expected shape ({len(test)}, {test.num_classes}), found {tuple(array.shape)}")
        check_class_names(array.class_names, test.class_names, found_in=file, expected_in=test.name)
        return torch.cat(list(array.blocks(len(test)))).float()
