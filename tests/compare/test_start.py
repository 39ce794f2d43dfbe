"""What a grid prepares before its first cell, on a slice of the digits."""

import numpy as np
import pytest
import yaml

from tpkd.compare.grid import plan_grid
from tpkd.compare.start import LABELS_NAME, TEACHER_NAME, prepare, save_array
from tpkd.data.configured import load_data
from tpkd.errors import InputError
from tpkd.models.preparation import student_preparation
from tpkd.teacher.network import build_teacher
from tpkd.teacher.several import each_alone
from training.tiny import plain_config
from training.two_teachers import cached


@pytest.fixture
def grid_of(tmp_path):
    def plan(*overrides, methods=("ce", "tpkd")):
        path = tmp_path / "run.yaml"
        path.write_text(yaml.safe_dump(plain_config(tmp_path) | {"objective": "ce"}))
        return plan_grid(path, ["student.layers=[]", *overrides], methods=list(methods), seeds=[42])

    return plan


def test_the_cache_is_built_first_and_all_share_its_teacher(grid_of):
    stages, notes = [], []
    grid = grid_of()
    shared = prepare(grid, lambda *stage: stages.append(stage), notes.append)
    assert {name for name, _, _ in stages} == {"teacher cache"}
    assert stages[-1][1] == stages[-1][2] > 0
    assert any("test samples" in note for note in notes)
    labels, logits = (np.load(grid.directory / name) for name in (LABELS_NAME, TEACHER_NAME))
    assert labels.tolist() == load_data(grid.base, "test").labels.tolist()
    assert shared.teacher.accuracy == pytest.approx(np.mean(logits.argmax(1) == labels), abs=1e-6)
    assert (shared.data.train_samples, shared.data.test_samples) == (150, 100)
    assert shared.fingerprints(42)["data_fingerprint"] == shared.data.fingerprint
    assert shared.fingerprints(42)["teacher_fingerprint"] == shared.teacher.fingerprint
    # The cache alone says nothing of the test split; with the answers kept above it does.
    alone = ["teacher.model=null", "teacher.weights=null", "teacher.options={}"]
    cached = prepare(grid_of(*alone), lambda *stage: None)
    assert (cached.teacher.model, cached.teacher.accuracy, cached.teacher.label_loss) == ("from its cache", None, None)
    assert (cached.start, cached.fingerprints(42)) == (shared.start, shared.fingerprints(42))
    known = prepare(grid_of(*alone, f"teacher.test_logits={grid.directory / TEACHER_NAME}"), lambda *stage: None)
    assert known.teacher.label_loss == pytest.approx(shared.teacher.label_loss, rel=1e-5)


def test_several_teachers_answer_with_the_average_of_their_probabilities(tmp_path):
    config, notes, stages = cached(tmp_path), [], []
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json") | {"objective": "ce"}))

    def plan(*overrides):
        return plan_grid(path, overrides, methods=["ce", "kd", "tpkd"], seeds=[42])

    shared = prepare(plan(), lambda *stage: stages.append(stage), notes.append)
    assert {name for name, _, _ in stages} == {"teachers.0 cache", "teachers.1 cache"}
    found = np.load(tmp_path / TEACHER_NAME)
    test = load_data(config, "test")
    inputs = student_preparation(config, test).inputs(test, np.arange(len(test)))
    singles = [build_teacher(alone, test)(inputs).double().softmax(-1) for _, alone in each_alone(config)]
    expected = (2 * singles[0] + singles[1]) / 3
    np.testing.assert_allclose(np.exp(found), expected.numpy(), atol=1e-5)
    assert shared.teacher.accuracy == pytest.approx(np.mean(expected.numpy().argmax(1) == test.labels))
    assert shared.teacher.model.startswith("average of the probabilities of 2 teachers: 0.67 × builtin:mlp, 0.33 × ")
    # Where one of them does not answer for the test split, there is no average of it.
    unknown = ("teachers.1.model=null", "teachers.1.weights=null", "teachers.1.options={}")
    notes.clear()
    partly = prepare(plan(*unknown), lambda *stage: None, notes.append)
    assert (partly.teacher.accuracy, partly.fingerprints(42)) == (None, shared.fingerprints(42))
    assert any(note.startswith("teachers.1: The teacher is right on") for note in notes)
    with pytest.raises(InputError, match="teachers: expected one teacher, found 2: objective 'dhkd'"):
        prepare(plan_grid(path, methods=["ce", "dhkd"], seeds=[42]), lambda *stage: None)


def test_a_grid_without_a_teacher_needs_none_and_says_so_for_those_that_do(grid_of):
    shared = prepare(grid_of("teacher=null", methods=("ce",)), lambda *stage: None)
    assert shared.teacher is None
    assert shared.fingerprints(42)["teacher_fingerprint"] is None
    with pytest.raises(InputError, match="teacher"):
        prepare(grid_of("teacher=null", methods=("ce", "tpkd")), lambda *stage: None)


def test_an_array_that_cannot_be_written_is_one_line(tmp_path):
    save_array(tmp_path / "new" / "a.npy", np.arange(3))
    assert np.load(tmp_path / "new" / "a.npy").tolist() == [0, 1, 2]
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/a\.npy: "):
        save_array(tmp_path / "file" / "a.npy", np.arange(3))
