"""The classes of teacher, student and data: enough of them for the objective, and the same ones in the same order."""

import pytest
import torch
from lightning.pytorch import Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from integrations.lightning.tiny import CLASSES, QUIET, WIDTH, Student, data, network
from tpkd.errors import InputError
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.cache.rows import CacheRows

NAMES = ("ant", "bee", "cat", "dog", "elk")
SWAPPED = ("bee", "ant", "cat", "dog", "elk")


def sequential(num_classes):
    return nn.Sequential(nn.Linear(WIDTH, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, num_classes)))


def configured(num_classes):
    teacher = nn.Module()
    teacher.config = type("Config", (), {"num_labels": num_classes})()
    return teacher


def counted(num_classes):
    teacher = nn.Module()
    teacher.num_classes = num_classes
    return teacher


@pytest.mark.parametrize("teacher", [sequential, configured, counted], ids=lambda make: make.__name__)
@pytest.mark.parametrize("objective", ["tpkd", "dkd"])
def test_two_classes_are_refused_at_construction_with_the_way_out(teacher, objective):
    message = f"objective '{objective}' needs at least 3 classes, found 2: .*objective=\"kd\""
    with pytest.raises(InputError, match=message):
        Student().distill_from(teacher(2), objective)
    assert Student().distill_from(teacher(2), "kd")
    assert Student().distill_from(teacher(3), objective)


def test_two_classes_of_a_cache_are_refused(tmp_path):
    rows = CacheRows.of_views(range(4), 1, lambda samples, views: torch.zeros(len(samples), 2))
    recipe = CacheRecipe("weights", "data", {}, None, 2, dtype="float32")
    build_cache(tmp_path / "cache", rows, lambda block: {"logits": block}, recipe)
    with pytest.raises(InputError, match="objective 'tpkd' needs at least 3 classes, found 2"):
        Student().distill_from(tmp_path / "cache")


def test_where_nothing_says_how_many_the_first_step_names_the_way_out():
    class Quiet(nn.Module):
        def forward(self, inputs):
            return inputs[:, :2]

    student = Student().distill_from(Quiet())
    inputs = torch.zeros(4, WIDTH)
    with pytest.raises(ValueError, match=r"at least 3 classes.*objective=\"kd\""):
        student.distillation_loss(inputs[:, :2], torch.tensor([0, 1, 0, 1]), inputs=inputs)


def test_a_teacher_of_other_classes_is_refused():
    student = Student()
    student.num_classes = CLASSES
    with pytest.raises(InputError, match=f"teacher: expected the {CLASSES} classes of the student, got 7"):
        student.distill_from(sequential(7))


def test_names_of_a_cache_are_compared(tmp_path):
    rows = CacheRows.of_views(range(4), 1, lambda samples, views: torch.zeros(len(samples), CLASSES))
    recipe = CacheRecipe("weights", "data", {}, None, CLASSES, dtype="float32", class_names=NAMES)
    build_cache(tmp_path / "cache", rows, lambda block: {"logits": block}, recipe)
    student = Student()
    student.class_names = SWAPPED
    with pytest.raises(InputError, match=r"teacher: class 0: expected 'bee'.*found 'ant'"):
        student.distill_from(tmp_path / "cache")


def named(names):
    teacher = network(7)
    teacher.class_names = names
    return teacher


def test_another_order_of_names_is_refused():
    student = Student()
    student.class_names = NAMES
    assert student.distill_from(named(NAMES))
    with pytest.raises(InputError, match=r"'ant'.*'bee'"):
        student.distill_from(named(SWAPPED))


@pytest.mark.parametrize("attribute", ["classes", "class_names"])
def test_names_of_the_data_are_compared_before_the_first_step(attribute):
    inputs, labels = data()
    dataset = TensorDataset(inputs, labels)
    setattr(dataset, attribute, list(SWAPPED))
    student = Student().distill_from(named(NAMES))
    with pytest.raises(InputError, match=r"'bee'.*'ant'|'ant'.*'bee'"):
        Trainer(**QUIET).fit(student, DataLoader(dataset, batch_size=16))
    setattr(dataset, attribute, list(NAMES))
    Trainer(**QUIET).fit(Student().distill_from(named(NAMES)), DataLoader(dataset, batch_size=16))
