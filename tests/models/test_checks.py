"""Whether a network fits the data: what is tried, and the way out that a refusal names."""

import numpy as np
import pytest
import torch

from models.networks import build
from tpkd.config.loading import ConfigError
from tpkd.config.schema import StudentConfig, TeacherConfig
from tpkd.data.class_map import ClassMap
from tpkd.data.dataset import Dataset
from tpkd.errors import InputError
from tpkd.models.checks import check_inputs, check_student_classes, check_teacher_classes

TEXTS = ("short", "the longest of them", "longer")
DATA = Dataset("toy", "train", "text", TEXTS, np.array([0, 1, 2]), np.arange(3), ("cat", "dog", "ant"))


class Tried:
    """A preparation that keeps the rows it is asked for."""

    def __init__(self, width=12):
        self.rows, self.width = [], width

    def inputs(self, dataset, positions):
        self.rows += positions
        return torch.zeros(len(positions), self.width, dtype=torch.float64)


def test_the_longest_text_is_tried_in_the_dtype_of_the_network():
    tried = Tried()
    check_inputs("student", "toy:mlp", build("mlp"), DATA, tried)
    assert tried.rows == [1]


def test_what_the_network_says_becomes_one_line():
    with pytest.raises(
        ConfigError, match=r"^student\.model: toy:mlp does not fit the inputs of toy: .*12.*13"
    ) as caught:
        check_inputs("student", "toy:mlp", build("mlp"), DATA, Tried(width=13))
    assert "\n" not in str(caught.value)


def test_a_lack_of_memory_is_not_blamed_on_the_data(monkeypatch):
    def refuse(model, batches):
        raise torch.OutOfMemoryError

    monkeypatch.setattr("tpkd.models.checks.extract_features", refuse)
    with pytest.raises(torch.OutOfMemoryError):
        check_inputs("student", "toy:mlp", build("mlp"), DATA, Tried())


def named(*names):
    model = build("mlp", num_classes=len(names))
    model.class_names = names
    return model


def test_a_student_of_another_order_is_told_of_a_new_head():
    student = StudentConfig(model="builtin:mlp")
    check_student_classes(student, DATA, named(*DATA.class_names))
    with pytest.raises(InputError, match=r"class 0: expected 'cat' as in toy, found 'dog'.*student.head: random"):
        check_student_classes(student, DATA, named("dog", "cat", "ant"))


def test_a_teacher_of_another_order_is_told_of_the_file_with_its_names(tmp_path):
    other = named("dog", "cat", "ant")
    with pytest.raises(InputError, match=r"teacher.class_names: FILE maps its classes by name"):
        check_teacher_classes(TeacherConfig(model="builtin:mlp"), DATA, None, other)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match=f"teacher.class_names: {tmp_path / 'config.json'} maps its classes by name"):
        check_teacher_classes(TeacherConfig(model=f"hf:{tmp_path}"), DATA, None, other)


def test_a_map_of_the_teachers_own_names_is_accepted_and_another_is_not():
    teacher, other = TeacherConfig(model="builtin:mlp", class_names="names.txt"), ("dog", "cat", "ant")
    check_teacher_classes(teacher, DATA, ClassMap.from_names(other, DATA.class_names), named(*other))
    with pytest.raises(InputError, match=r"class_names names\.txt"):
        check_teacher_classes(teacher, DATA, ClassMap.from_names(DATA.class_names, DATA.class_names), named(*other))
