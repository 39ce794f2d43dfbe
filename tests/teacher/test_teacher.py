"""Both forms of a teacher: hidden from the module that holds it, the same answers however its inputs come."""

import copy

import pytest
import torch
from torch import nn

from teacher.cache.toys import Teacher, assert_true_rows, make_recipe, make_rows
from tpkd.data.class_map import ClassMap
from tpkd.errors import InputError
from tpkd.geometry.top_k import TopK
from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec
from tpkd.teacher.cache.build import build_cache
from tpkd.teacher.teacher import Answers, CachedTeacher, OnlineTeacher, layer_tensor, logits_of


def test_logits_are_found_in_whatever_a_network_returns():
    logits = torch.randn(2, 3)
    for output in (logits, (logits, 1), [logits], {"logits": logits, "loss": None}):
        assert logits_of(output) is logits
    with pytest.raises(InputError, match="model: expected it to return logits, got dict with loss, hidden"):
        logits_of({"loss": logits, "hidden": logits})
    with pytest.raises(InputError, match="got int"):
        logits_of(3)


def test_a_teacher_is_no_part_of_the_module_that_holds_it():
    student = nn.Linear(4, 3)
    student.teacher = OnlineTeacher(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5), nn.BatchNorm1d(3)), student=student)
    student.train()
    assert student.state_dict().keys() == {"weight", "bias"}
    assert len(list(student.modules())) == 1
    assert not any(module.training for module in student.teacher.model.modules())
    student.teacher.model.train()
    first, second = (student.teacher(torch.ones(8, 4)) for _ in range(2))
    assert torch.equal(first, second)
    assert not student.teacher.model[2].running_mean.any()


def test_a_copy_of_the_student_has_the_same_teacher():
    """Averaged weights live in a copy, and a second teacher would cost its memory again."""
    student = nn.Linear(4, 3)
    student.teacher = OnlineTeacher(nn.Linear(4, 3), student=student)
    copied = copy.deepcopy(student)
    assert copied.weight is not student.weight
    assert copied.teacher.model is student.teacher.model


def test_a_teacher_placed_by_its_loader_stays_there():
    class Placed(nn.Linear):
        hf_device_map = {"": "elsewhere"}  # noqa: RUF012 (as transformers leaves it on a model)

        def to(self, device):
            raise AssertionError("moved")

    teacher = OnlineTeacher(Placed(4, 3))
    assert teacher.to(torch.device("cpu")) is teacher


def test_inputs_are_unpacked_for_a_network_and_handed_whole_to_a_classifier():
    class Sum(nn.Module):
        def forward(self, first, second):
            return {"logits": first + second}

    teacher, first, second = OnlineTeacher(Sum()), torch.randn(2, 3), torch.randn(2, 3)
    for inputs in ((first, second), [first, second], {"second": second, "first": first}):
        assert torch.equal(teacher(inputs), first + second)
    with pytest.raises(InputError, match="inputs: expected what to call the teacher with, got None"):
        teacher.answer()


def test_a_classifier_answers_with_layers_where_asked_and_in_the_classes_of_the_data():
    model = build_model(ModelSpec("builtin:mlp", num_classes=3, options={"input_size": 4, "hidden": [8, 6]}))
    mapping = ClassMap.from_names(("a", "b", "c"), ("c", "a"))
    teacher, inputs = OnlineTeacher(model, layers=(2,), class_map=mapping), torch.randn(5, 4)
    found = teacher.answer(inputs, with_layers=True)
    assert torch.equal(found.logits, model(inputs)[:, [2, 0]])
    assert [feature.shape[1] for feature in found.layer_features] == list(teacher.layer_sizes) == [6]
    assert teacher.answer(inputs).layer_features == ()


def test_a_cache_answers_by_its_keys_with_the_layers_it_holds(tmp_path):
    rows, name = make_rows(4, 2), layer_tensor(1)
    values = torch.arange(8 * 5).reshape(8, 5) / 64

    def forward(keys):
        return {"logits": values[: len(keys)], name: values[: len(keys), :2] + 1}

    build_cache(tmp_path, rows, forward, make_recipe(tensors={name: 2}), block_rows=8)
    teacher, keys = (
        CachedTeacher(tmp_path, layers=(1,)),
        (torch.from_numpy(rows.sample_ids), torch.from_numpy(rows.view_ids)),
    )
    found = teacher.answer(None, *keys, with_layers=True)
    assert torch.equal(found.logits, values)
    assert torch.equal(found.layer_features[0], values[:, :2] + 1)
    assert (teacher.layer_sizes, teacher.dtype) == ((2,), torch.float16)
    assert CachedTeacher(tmp_path, layers=(1, 2)).layer_sizes == ()  # not all of them are held
    assert copy.deepcopy(teacher) is teacher
    with pytest.raises(InputError, match="sample_ids: expected which rows of the teacher cache to read, got None"):
        teacher.answer(torch.zeros(1))


def test_a_truncated_cache_answers_with_what_it_kept_and_its_layers(tmp_path):
    rows, name = make_rows(4, 2), layer_tensor(1)
    features = torch.arange(16).reshape(8, 2) / 64

    def forward(keys):
        return {**Teacher()(keys), name: features[: len(keys)]}

    build_cache(tmp_path, rows, forward, make_recipe(tensors={name: 2}, top_k=2), block_rows=8)
    teacher = CachedTeacher(tmp_path, layers=(1,)).to(torch.device("meta"))
    keys = (torch.from_numpy(rows.sample_ids), torch.from_numpy(rows.view_ids))
    elsewhere = teacher.answer(None, *keys, with_layers=True)
    assert {elsewhere.logits.log_probs.device.type, elsewhere.logits.indices.device.type} == {"meta"}
    found = teacher.to(torch.device("cpu")).answer(None, *keys, with_layers=True)
    assert_true_rows(found.logits, *(key.tolist() for key in keys))
    assert torch.equal(found.layer_features[0], features)
    assert (teacher.top_k, teacher.layer_sizes) == (2, (2,))
    with pytest.raises(
        InputError, match=r"study: expected the teacher's logits of all classes, found the 2 largest .*"
    ):
        found.all_logits("study")


def test_all_logits_are_the_logits_where_none_was_left_out():
    logits = torch.randn(2, 3)
    assert Answers(logits).all_logits("study") is logits
    assert OnlineTeacher(nn.Linear(4, 3)).top_k is None
    with pytest.raises(InputError, match=r"build its cache without teacher\.top_k, or leave teacher\.cache out"):
        Answers(TopK(logits.log_softmax(-1), torch.arange(3).expand(2, 3))).all_logits("study")
