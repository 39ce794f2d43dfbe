from types import SimpleNamespace

import pytest
from torch import nn
from torch.utils.data import Subset

from tpkd.errors import InputError
from tpkd.integrations.classes import check_classes, class_names_of, data_class_names, num_classes_of
from tpkd.objectives.registry import create


def named(names):
    return SimpleNamespace(class_names=names, num_classes=len(names))


def test_the_number_of_classes_is_taken_from_whoever_states_it():
    assert num_classes_of(SimpleNamespace(config=SimpleNamespace(num_labels=7))) == 7
    assert num_classes_of(SimpleNamespace(num_classes=5)) == 5
    assert num_classes_of(nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 3))) == 3
    assert num_classes_of(None) is None


def test_names_of_weights_with_another_number_of_outputs_count_as_none():
    model = SimpleNamespace(pretrained_cfg={"label_names": ["a", "b"]}, num_classes=3)
    assert class_names_of(model) is None
    model.num_classes = 2
    assert class_names_of(model) == ("a", "b")


def test_a_subset_has_the_names_of_its_data():
    assert data_class_names(Subset(SimpleNamespace(classes=["a", "b"]), [0])) == ("a", "b")


def test_student_teacher_and_data_are_compared_in_pairs():
    objective, names = create("tpkd"), ("a", "b", "c")
    student, teacher, data = ("student", named(names)), ("teacher.config", named(names)), ("data", named(names))
    check_classes(objective, student, teacher, data, way_out="rename")
    check_classes(objective, student, ("teacher", None), way_out="rename")
    with pytest.raises(InputError, match=r"^teacher: expected the 3 classes of the student, got 4"):
        check_classes(objective, student, ("teacher.config", named("abcd")), way_out="rename")
    with pytest.raises(InputError, match="rename"):
        check_classes(objective, student, teacher, ("data", named(("b", "a", "c"))), way_out="rename")
    with pytest.raises(InputError, match="needs at least 3 classes, found 2"):
        check_classes(objective, ("student", None), ("teacher", named("ab")), way_out="rename")
