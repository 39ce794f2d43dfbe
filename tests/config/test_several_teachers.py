"""The list `teachers`: what it may hold, how its entries are named, and that nothing changes for runs without it."""

import pytest
import yaml

from config.minimal import MINIMAL, refused
from tpkd.config.loading import config_yaml, load_config
from tpkd.config.schema import RunConfig

TWO = MINIMAL + "teachers: [{cache: a, weight: 2}, {cache: b, test_logits: b.npy}]\n"


@pytest.fixture
def two(file):
    file.write_text(TWO)
    return file


def test_entries_have_the_keys_of_a_teacher_and_a_weight(two, tmp_path):
    config = load_config(two)
    assert [(teacher.cache, teacher.weight) for teacher in config.teachers] == [("a", 2.0), ("b", 1.0)]
    assert [key for key, _ in config.named_teachers] == ["teachers.0", "teachers.1"]
    path = tmp_path / "resolved.yaml"
    path.write_text(config_yaml(config))
    assert load_config(path) == config


def test_one_entry_is_the_teacher_whatever_its_weight(file):
    listed, alone = (resolved(file, text) for text in ("teachers: [{cache: a, weight: 7}]", "teacher: {cache: a}"))
    assert listed == alone
    assert listed.teachers == ()
    assert [key for key, _ in listed.named_teachers] == ["teacher"]


def resolved(file, line):
    file.write_text(MINIMAL + line + "\n")
    return load_config(file)


def test_without_the_key_a_configuration_is_what_it_was(file):
    config = load_config(file)
    assert config.named_teachers == ()
    earlier = {key: value for key, value in yaml.safe_load(config_yaml(config)).items() if key != "teachers"}
    assert RunConfig.model_validate(earlier) == config


def test_an_entry_is_overridden_by_its_number(two):
    config = load_config(two, ["teachers.1.cache=c", "teachers.0.weight=3", ("teachers.1.test_logits", None)])
    assert [(teacher.cache, teacher.weight) for teacher in config.teachers] == [("a", 3.0), ("c", 1.0)]
    assert config.teachers[1].test_logits is None
    assert len(load_config(two, ["teachers=[{cache: x}, {cache: y}, {cache: z}]", "teachers.2.weight=4"]).teachers) == 3
    for number in ("2", "-1", "01", "x", "9" * 5000):
        assert "expected an entry from 0 to 1, found" in refused(two, [f"teachers.{number}.cache=c"])
    assert "expected a list with entries" in refused(two, ["teachers=[]", "teachers.0.cache=c"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("teacher={cache: c}", "teachers: expected none beside teacher, found 2"),
        ("teachers.1.weight=0", "teachers.1.weight: Input should be greater than 0, found 0"),
        ("teachers.1.weihgt=2", "teachers.1.weihgt: unknown key, expected one of cache, "),
        ("teachers.1.weihgt=2", "did you mean weight?"),
        ("teachers.1.cache=a", "teachers.1.cache: expected a directory of its own, found that of teachers.0"),
        (
            "teachers.0.layers=[1]",
            "teachers.0.layers: expected none, because layers of several teachers have no average",
        ),
        ("student.layers=[1]", "student.layers: expected none, because layers of several teachers have no average"),
        ("teachers.0.top_k=3", "teachers.0.top_k: expected none, because an average of several teachers needs all"),
        ("teachers.0.cache=null", "teachers.0: expected a model, a cache, or both"),
        ("teachers.0.views={pad: 4}", "teachers.0.views.pad: expected 0 as in views, found 4"),
        ("teachers={cache: a}", "teachers: expected a list, found"),
        ("views.mixup=0.5", "teachers.0.mixed: missing, and the teacher's cache has no answers to mixed images"),
    ],
)
def test_a_mistake_is_one_line_with_its_key(two, override, message):
    assert message in refused(two, [override])
