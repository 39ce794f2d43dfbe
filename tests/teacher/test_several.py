"""Several teachers as one: their answers, their fingerprint, and the keys that errors name."""

import pytest
import torch
from torch import nn

from tpkd.config.loading import ConfigError
from tpkd.data.configured import load_data
from tpkd.errors import InputError
from tpkd.geometry import TopK
from tpkd.models.preparation import student_preparation
from tpkd.teacher import caching
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.opening import open_teacher
from tpkd.teacher.several import SeveralTeachers, each_alone, keyed_as
from tpkd.teacher.teacher import Answers, CachedTeacher, OnlineTeacher
from training.tiny import make_config, teacher_weights, with_cache
from training.two_teachers import cached, entry, second_weights, two_teachers

SMALL = {"limit": 40, "epochs": 1, "views": {"num_views": 2, "pad": 1, "scale": 16}}
CPU = torch.device("cpu")


def networks():
    torch.manual_seed(0)
    return [OnlineTeacher(nn.Linear(4, 5)) for _ in range(3)]


def opened(config):
    dataset = load_data(config, "train")
    return open_teacher(config, dataset, student_preparation(config, dataset), CPU), dataset


def test_the_logits_are_the_log_of_the_averaged_probabilities():
    members, inputs = networks(), torch.randn(6, 4)
    found = SeveralTeachers(members, [1, 2, 1]).answer(inputs)
    single = [member(inputs) for member in members]
    expected = sum(share * logits.softmax(-1) for share, logits in zip((0.25, 0.5, 0.25), single, strict=True))
    torch.testing.assert_close(found.logits.exp(), expected)
    assert all(one.equal(other) for one, other in zip(found.members, single, strict=True))
    assert (found.weights, found.layer_features) == ((0.25, 0.5, 0.25), ())


def test_the_fingerprint_is_that_of_all_members_their_order_and_their_weights():
    first, second, third = networks()
    kinds = [
        ([first, second], None),
        ([second, first], None),
        ([first, third], None),
        ([first, second, third], None),
        ([first, second], [2, 1]),
    ]
    assert len({SeveralTeachers(members, weights).fingerprint for members, weights in kinds}) == len(kinds)
    again = SeveralTeachers([first, second], [3.0, 3.0]).fingerprint
    assert again == SeveralTeachers([first, second]).fingerprint


def test_fewer_than_two_and_truncated_ones_are_refused(tmp_path):
    with pytest.raises(ValueError, match="members: expected at least two teachers, got 1"):
        SeveralTeachers(networks()[:1])
    config = with_cache(tmp_path, ["teacher.top_k=3"], **SMALL)
    truncated = CachedTeacher(open_cache(config.teacher.cache))
    with pytest.raises(ValueError, match=r"members\[1\]: expected all classes, got the top 3 of each answer"):
        SeveralTeachers([networks()[0], truncated])
    both = SeveralTeachers(networks()[:2])
    with pytest.raises(InputError, match="teachers: expected the teacher's logits of all classes"):
        both.join([Answers(TopK(torch.zeros(1, 1), torch.zeros(1, 1, dtype=torch.long)))] * 2)


def test_a_truncated_cache_without_a_network_is_refused_under_its_key(tmp_path):
    config = with_cache(tmp_path, ["teacher.top_k=3"], **SMALL)
    several = two_teachers(
        tmp_path, teachers=[entry(teacher_weights(tmp_path)), {"cache": config.teacher.cache}], **SMALL
    )
    with pytest.raises(ConfigError, match=r"teachers\.1\.cache: expected all classes, found the top 3"):
        opened(several)


def test_each_is_opened_as_it_would_be_alone(tmp_path):
    config = cached(tmp_path, **SMALL)
    caching.build_all(config)
    several, dataset = opened(config)
    keys = {"sample_ids": torch.from_numpy(dataset.ids[:5]), "view_ids": torch.zeros(5, dtype=torch.long)}
    singles = [opened(alone)[0] for _, alone in each_alone(config)]
    answers = several.answer(**keys)
    assert several.members[0].fingerprint == singles[0].fingerprint
    for member, single in zip(answers.members, singles, strict=True):
        assert member.equal(single.answer(**keys).logits)
    assert several.about.dtype == "float32"
    assert several.to(CPU) is several


def test_errors_and_remarks_name_the_teacher_they_are_about(tmp_path):
    config = cached(tmp_path, **SMALL)
    caching.build_all(config)
    other = second_weights(tmp_path)
    with pytest.raises(ConfigError, match=r"^teachers\.0\.cache: .*model_fingerprint"):
        opened(cached(tmp_path, [("teachers.0.weights", str(other))], **SMALL))
    found, _ = opened(cached(tmp_path, [("teachers.1.seed", 5)], **SMALL))
    assert found.remark.startswith("teachers.1: the teacher was built to check its cache")


def test_keys_in_messages_and_nothing_else():
    for said, expected in {
        "teacher: missing": "teachers.2: missing",
        "teacher.cache: runs/teacher.cache: x": "teachers.2.cache: runs/teacher.cache: x",
        "teacher.model: my teacher.safetensors": "teachers.2.model: my teacher.safetensors",
        "data: the teacher is": "data: the teacher is",
    }.items():
        with pytest.raises(ConfigError) as caught, keyed_as("teachers.2"):
            raise ConfigError(said)
        assert str(caught.value) == expected
    with pytest.raises(InputError, match=r"^teacher: x$"), keyed_as("teachers.2"):
        raise InputError("teacher: x")  # not about a key


def test_a_run_with_one_teacher_or_none(tmp_path):
    config = make_config(tmp_path)
    assert each_alone(config) == (("teacher", config),)
    assert each_alone(make_config(tmp_path, teacher=None, student={"model": "builtin:mlp"})) == ()
