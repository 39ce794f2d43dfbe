"""Draws from a data set: pure functions of seed and ids, in every class."""

import numpy as np
import pytest

from tpkd.config.loading import resolve_config
from tpkd.data.configured import load_data
from tpkd.data.dataset import Dataset
from tpkd.data.draws import draw_per_class, hold_out, leave_per_class
from tpkd.data.loading import load_dataset
from tpkd.errors import InputError
from tpkd.training.loop import train as run_training
from training.tiny import make_config, plain_config


def numbered(sizes, order=None):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    ids = 1000 + np.arange(len(labels))
    data = Dataset(
        "toy", "train", "vector", ids[:, None].astype(np.float32), labels, ids, tuple("abcdef"[: len(sizes)])
    )
    return data if order is None else data.subset(order)


def test_a_draw_depends_on_seed_and_ids_alone():
    data = numbered([30, 40, 50])
    few = draw_per_class(data, 8, seed=3)
    assert np.bincount(few.labels).tolist() == [8, 8, 8]
    assert few.ids.tolist() == sorted(few.ids)  # in the order of the data
    shuffled = numbered([30, 40, 50], np.random.default_rng(0).permutation(120))
    assert set(draw_per_class(shuffled, 8, seed=3).ids) == set(few.ids)
    assert set(draw_per_class(data, 8, seed=4).ids) != set(few.ids)
    assert set(draw_per_class(data, 9, seed=3).ids) > set(few.ids)
    without_b = data.subset(np.flatnonzero(data.labels != 1))
    assert set(draw_per_class(without_b, 8, seed=3).ids) == set(few.ids[few.labels != 1])


def test_a_draw_is_not_the_first_rows():
    chosen = draw_per_class(numbered([1000]), 100, seed=0).ids - 1000
    assert 400 < chosen.mean() < 600


def test_a_class_with_fewer_gives_all_and_says_so():
    few = draw_per_class(numbered([30, 5, 8]), 8, seed=0)
    assert np.bincount(few.labels).tolist() == [8, 5, 8]
    assert few.notes == ("toy: fewer than 8 training samples, and so all of them, of 'b' (5)",)


def test_the_part_held_out_is_a_share_of_every_class_and_leaves_the_rest():
    data = numbered([30, 40, 1, 2])
    kept, held = hold_out(data, {"test": 0.2}, seed=0).values()
    assert np.bincount(held.labels, minlength=4).tolist() == [6, 8, 0, 0]
    assert sorted([*kept.ids, *held.ids]) == data.ids.tolist()
    assert (kept.split, held.split, kept.class_names) == ("train", "test", data.class_names)
    assert held.notes == ("toy: 14 of 73 training samples are held out as the test part",)
    assert set(hold_out(data, {"test": 0.2}, seed=1)["test"].ids) != set(held.ids)
    assert np.bincount(hold_out(data, {"test": 0.99}, seed=0)["train"].labels).tolist() == [1, 1, 1, 1]
    problem = (
        r"test: expected classes of which 0.1 is a sample, found at most 2 samples .*; hold out more, or name a test"
    )
    with pytest.raises(InputError, match=problem):
        hold_out(numbered([2, 1]), {"test": 0.1}, seed=0)


def test_two_parts_held_out_do_not_depend_on_each_other():
    data = numbered([30, 40, 1, 2])
    parts = hold_out(data, {"test": 0.2, "validation": 0.3}, seed=0)
    assert list(parts) == ["train", "test", "validation"]
    assert sorted(sample for part in parts.values() for sample in part.ids) == data.ids.tolist()
    assert np.bincount(parts["validation"].labels, minlength=4).tolist() == [9, 12, 0, 1]
    assert parts["validation"].split == "validation"
    assert parts["validation"].notes == ("toy: 22 of 73 training samples are held out as the validation part",)
    large = numbered([30, 40])
    for share in (0.1, 0.6):
        for name, other in (("test", "validation"), ("validation", "test")):
            alone, beside = hold_out(large, {name: 0.3}, seed=0), hold_out(large, {name: 0.3, other: share}, seed=0)
            assert beside[name].ids.tolist() == alone[name].ids.tolist()
    shuffled = numbered([30, 40, 1, 2], np.random.default_rng(0).permutation(73))
    again = hold_out(shuffled, {"test": 0.2, "validation": 0.3}, seed=0)
    assert all(set(again[name].ids) == set(part.ids) for name, part in parts.items())
    assert np.bincount(hold_out(data, {"test": 0.5, "validation": 0.49}, seed=0)["train"].labels).min() == 1


def test_draws_of_a_configuration(tmp_path):
    config = make_config(tmp_path, data={"name": "digits", "per_class": 20, "test": 0.2}, limit=None)
    train, test, whole = load_data(config, "train"), load_data(config, "test"), load_dataset("digits", "train")
    assert np.bincount(train.labels).tolist() == [20] * 10
    assert not set(train.ids) & set(test.ids)
    assert set(train.ids) | set(test.ids) < set(whole.ids)
    other = load_data(make_config(tmp_path, data={"name": "digits", "per_class": 20, "seed": 1}, limit=None), "train")
    assert other.fingerprint != train.fingerprint == load_data(config, "train").fingerprint


def test_what_is_left_is_what_was_not_drawn():
    data = numbered([30, 5, 8])
    drawn, left = draw_per_class(data, 4, seed=3), leave_per_class(data, 4, seed=3)
    assert sorted([*drawn.ids, *left.ids]) == data.ids.tolist()
    assert np.bincount(left.labels).tolist() == [26, 1, 4]
    with pytest.raises(InputError, match=r"except_per_class: expected classes of more than 5 .* no more of 'b'"):
        leave_per_class(data, 5, seed=3)


def test_a_teacher_of_a_configuration_sees_other_samples_than_its_students(tmp_path):
    def train_of(**data):
        config = make_config(tmp_path, data={"name": "digits", "validation": 0.1, **data}, limit=None)
        return {split: load_data(config, split) for split in ("train", "validation")}

    student, teacher = train_of(per_class=20), train_of(except_per_class=20)
    assert not set(student["train"].ids) & set(teacher["train"].ids)
    assert student["validation"].fingerprint == teacher["validation"].fingerprint
    few = train_of(except_per_class=20, per_class=30)["train"]
    assert np.bincount(few.labels).tolist() == [30] * 10
    assert set(few.ids) < set(teacher["train"].ids)


def test_a_validation_part_of_a_configuration(tmp_path):
    def parts_of(**data):
        config = make_config(tmp_path, data={"name": "digits", **data}, limit=None, evaluation={})
        return {split: load_data(config, split) for split in ("train", "test", "validation")}

    whole = load_dataset("digits", "train")
    alone, both = parts_of(validation=0.1), parts_of(validation=0.1, test=0.2, per_class=30)
    assert alone["test"].fingerprint == load_dataset("digits", "test").fingerprint
    assert sorted([*alone["train"].ids, *alone["validation"].ids]) == sorted(whole.ids)
    assert both["validation"].fingerprint == alone["validation"].fingerprint
    assert np.bincount(both["train"].labels).tolist() == [30] * 10
    assert len({sample for part in both.values() for sample in part.ids}) == sum(map(len, both.values()))
    assert len(load_data(make_config(tmp_path, data={"name": "digits", "validation": 0.2}), "validation")) == 100


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"per_class": 0}, "data.per_class: Input should be greater than 0"),
        ({"test": 1.0}, "data.test: Input should be less than 1"),
        ({"test": 0.2, "splits": {"test": "b.csv"}}, "data: test: expected none beside splits.test, found 0.2"),
        (
            {"validation": 0.1, "splits": {"validation": "b.csv"}},
            "data: validation: expected none beside splits.validation, found 0.1",
        ),
        (
            {"test": 0.5, "validation": 0.5},
            "data: validation: expected shares that leave something to train on, found test 0.5 and validation 0.5",
        ),
        ({"columns": {"txt": "a"}}, r"data.columns.txt: unknown key, expected one of .*did you mean text\?"),
        ({"splits": {"train": "s3://x"}}, "data.splits.train: expected a path on this machine"),
    ],
)
def test_settings_that_do_not_work_are_named(tmp_path, data, problem):
    with pytest.raises(InputError, match=problem):
        resolve_config(plain_config(tmp_path, data={"name": "digits", **data}))


def test_notes_of_the_data_are_in_the_log_of_the_run(tmp_path):
    data = {"name": "digits", "per_class": 200}
    student = {"model": "builtin:mlp"}
    config = make_config(tmp_path, data=data, student=student, teacher=None, objective="ce", epochs=1, limit=None)
    run_training(config, tmp_path / "run")
    said = (tmp_path / "run/run.log").read_text()
    assert "digits: fewer than 200 training samples, and so all of them, of '0' (" in said
