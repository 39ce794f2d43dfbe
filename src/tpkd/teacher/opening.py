"""Open the frozen networks of a run: its teacher, and the student's initial state."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tpkd.arrays import open_array
from tpkd.class_names import check_class_names
from tpkd.config.loading import ConfigError, expand_data, keyed
from tpkd.config.schema import RunConfig
from tpkd.data.batches import Preparation
from tpkd.data.dataset import Dataset
from tpkd.errors import InputError
from tpkd.models.classifier import Classifier
from tpkd.models.preparation import preprocessing
from tpkd.teacher.cache.manifest import MANIFEST_NAME, read_manifest
from tpkd.teacher.cache.read import TeacherCache, open_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.remote import readable_cache
from tpkd.teacher.network import build_teacher, teacher_preparation, teacher_source
from tpkd.teacher.recipes import known_recipe, network_recipe, unnamed_recipe
from tpkd.teacher.several import SeveralTeachers, each_alone, keyed_as
from tpkd.teacher.teacher import CachedTeacher, OnlineTeacher, Teacher

LOCATED_AT_ONCE = 65_536
"""Samples whose rows are looked up together before a run starts."""


def open_teacher(config: RunConfig, dataset: Dataset, preparation: Preparation, device: torch.device) -> Teacher | None:
    """The configured teacher or teachers, None where there is none.

    Raises:
        InputError: a cache was computed from something else, is unfinished or damaged, or lacks a row.
    """
    opened: list[Teacher] = []
    for key, alone in each_alone(config):
        with keyed_as(key):
            opened.append(_open_one(alone, dataset, preparation, device))
            if config.teachers and opened[-1].top_k is not None:
                found = f"found the top {opened[-1].top_k} of each answer"
                raise ConfigError(f"teacher.cache: expected all classes, {found}: an average of teachers needs them")
    if len(opened) < 2:
        return opened[0] if opened else None
    several = SeveralTeachers(opened, [teacher.weight for teacher in config.teachers])
    remarks = ((key, member.remark) for (key, _), member in zip(each_alone(config), opened, strict=True))
    several.remark = "; ".join(f"{key}: {remark}" for key, remark in remarks if remark)
    return several


def _open_one(config: RunConfig, dataset: Dataset, preparation: Preparation, device: torch.device) -> Teacher:
    teacher = config.teacher
    assert teacher is not None
    if teacher.cache is None:
        if preprocessing(dataset, teacher_preparation(config, dataset)) != preprocessing(dataset, preparation):
            raise ConfigError("teacher.cache: missing, and needed because the teacher sees other inputs")
        return build_teacher(config, dataset).to(device)
    remark = ""
    with keyed("teacher.cache"):
        directory = _built(teacher.cache, "tpkd cache build")
        manifest = read_manifest(directory)
        if teacher.model is None:
            expected = unnamed_recipe(config, dataset, manifest.recipe)
        elif (known := known_recipe(config, dataset, manifest)) is not None:
            expected = known
        else:
            own = teacher_preparation(config, dataset)
            network = build_teacher(config, dataset)
            expected = network_recipe(network, dataset, own, teacher.cache_dtype, teacher.top_k)
            remark = f"the teacher was built to check its cache: {_unknown(config, dataset)}"
        cached = CachedTeacher(_open_whole(directory, expected, dataset, preparation), layers=teacher.layers).to(device)
    cached.remark = remark
    return cached


def _unknown(config: RunConfig, dataset: Dataset) -> str:
    """Why a manifest did not say enough to do without the teacher."""
    if teacher_source(config, dataset) is None:
        return "no local file says what it is; teacher.weights may name one"
    return "the manifest does not know its files and settings as they are now; `tpkd cache build` adds them"


def open_initial(
    config: RunConfig, dataset: Dataset, preparation: Preparation, student: Classifier, device: torch.device
) -> Teacher:
    """The student's initial state; `student` is a copy that the result owns."""
    network = OnlineTeacher(student)
    if config.initial.cache is None:
        return network.to(device)
    with keyed("initial.cache"):
        expected = network_recipe(network, dataset, preparation, config.initial.cache_dtype)
        directory = _built(config.initial.cache, "tpkd cache build --network initial")
        return CachedTeacher(_open_whole(directory, expected, dataset, preparation)).to(device)


def _built(place: str, command: str) -> Path:
    directory = readable_cache(expand_data(place))
    if not (directory / MANIFEST_NAME).exists():
        raise InputError(f"{directory}: expected a cache, found no {MANIFEST_NAME}; `{command}` writes it")
    return directory


def _open_whole(directory: Path, expected: CacheRecipe, dataset: Dataset, preparation: Preparation) -> TeacherCache:
    cache = open_cache(directory, expected=expected)
    views = preparation.num_views
    # Before the first step rather than at the first step that needs the row; some at a time, as there may be many.
    for start in range(0, len(dataset), LOCATED_AT_ONCE):
        ids = dataset.ids[start : start + LOCATED_AT_ONCE]
        cache.locate(np.repeat(ids, views), np.tile(np.arange(views), len(ids)))
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
