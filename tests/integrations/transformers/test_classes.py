"""The classes of teacher, student and data: enough of them for the objective, and the same ones in the same order."""

import pytest
import torch

from integrations.transformers.tiny import CLASSES, text_model, texts, trainer_for
from tpkd.errors import InputError
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows

NAMES = ("ant", "bee", "cat", "dog", "elk")
SWAPPED = ("bee", "ant", "cat", "dog", "elk")


def named(seed, names, key=int):
    """A network whose configuration names its classes by numbers, or by strings as the official scripts write them."""
    model = text_model(seed)
    model.config.id2label = {key(number): name for number, name in enumerate(names)}
    return model


KEYS = pytest.mark.parametrize(("student_key", "teacher_key"), [(int, int), (str, str), (int, str), (str, int)])


@KEYS
def test_names_by_strings_are_those_by_numbers(tmp_path, student_key, teacher_key):
    student, teacher = named(0, NAMES, student_key), named(1, NAMES, teacher_key)
    assert trainer_for(tmp_path, student, texts(), teacher=teacher).teacher.model is teacher


@KEYS
def test_another_order_is_refused_however_names_are_keyed(tmp_path, student_key, teacher_key):
    with pytest.raises(InputError, match=r"'ant'.*'bee'"):
        trainer_for(tmp_path, named(0, NAMES, student_key), texts(), teacher=named(1, SWAPPED, teacher_key))


def test_names_stand_in_the_order_of_numbers_and_not_of_strings(tmp_path):
    student, teacher = (text_model(seed, num_labels=12) for seed in range(2))
    teacher.config.id2label = {number: f"intent-{number}" for number in range(12)}
    student.config.id2label = dict(sorted((str(key), name) for key, name in teacher.config.id2label.items()))
    assert list(student.config.id2label)[2] == "10"
    assert trainer_for(tmp_path, student, texts(), teacher=teacher).teacher.model is teacher


@pytest.mark.parametrize(
    "unknown",
    [
        [f"LABEL_{number}" for number in range(CLASSES)],
        list("01234"),
    ],
)
def test_placeholders_are_no_names(tmp_path, unknown):
    teacher = named(1, unknown, str)
    assert trainer_for(tmp_path, named(0, NAMES), texts(), teacher=teacher).teacher.model is teacher


@pytest.mark.parametrize(
    "objective", ["tpkd", "dkd", "tpkd-no-ce", "safe-full-kl", "tpkd-no-projection", "compensation-only"]
)
def test_two_classes_are_refused_at_construction_with_the_way_out(tmp_path, objective):
    student, teacher = (text_model(seed, num_labels=2) for seed in range(2))
    message = f"objective '{objective}' needs at least 3 classes, found 2: .*objective=\"kd\""
    with pytest.raises(InputError, match=message):
        trainer_for(tmp_path, student, texts(), teacher=teacher, objective=objective)


@pytest.mark.parametrize("objective", ["kd", "ce", "kl-dist", "xe-kl"])
def test_two_classes_are_taken_by_objectives_that_know_what_to_do(tmp_path, objective):
    student, teacher = (text_model(seed, num_labels=2) for seed in range(2))
    data = [sample | {"labels": sample["labels"] % 2} for sample in texts()]
    trainer = trainer_for(tmp_path, student, data, teacher=teacher, objective=objective)
    assert trainer.train().training_loss > 0


def test_one_output_is_no_classification(tmp_path):
    student, teacher = (text_model(seed, num_labels=1) for seed in range(2))
    with pytest.raises(InputError, match="objective 'kd' needs at least 2 classes, found 1: a single output is a regr"):
        trainer_for(tmp_path, student, texts(), teacher=teacher, objective="kd")


def test_names_of_a_cache_are_compared(tmp_path):
    rows = CacheRows.of_views(range(64), 1, lambda samples, views: torch.zeros(len(samples), CLASSES))
    recipe = CacheRecipe("weights", "data", {}, None, CLASSES, dtype="float32", class_names=NAMES)
    build_cache(tmp_path / "cache", rows, lambda block: {"logits": block}, recipe)
    assert trainer_for(tmp_path, named(0, NAMES, str), texts(ids=True), teacher=tmp_path / "cache")
    with pytest.raises(InputError, match=r"teacher cache: class 0: expected 'bee'.*found 'ant'"):
        trainer_for(tmp_path, named(0, SWAPPED), texts(ids=True), teacher=tmp_path / "cache")


class Features:
    """The part of a `datasets.Dataset` that names classes."""

    def __init__(self, samples, column, names):
        feature = type("ClassLabel", (), {"names": list(names)})()
        self.samples, self.features = samples, {"input_ids": object(), column: feature}

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


@pytest.mark.parametrize("column", ["label", "labels"])
@pytest.mark.parametrize("knows", ["student", "teacher"])
def test_names_of_the_data_are_compared_with_those_of_both_networks(tmp_path, column, knows):
    student, teacher = text_model(0), text_model(1)
    (student if knows == "student" else teacher).config.id2label = dict(enumerate(NAMES))
    assert trainer_for(tmp_path, student, Features(texts(), column, NAMES), teacher=teacher)
    with pytest.raises(InputError, match=r"'ant'.*'bee'|'bee'.*'ant'"):
        trainer_for(tmp_path, student, Features(texts(), column, SWAPPED), teacher=teacher)
