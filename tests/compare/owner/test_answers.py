"""Answers are kept with a cell, outlive its logits, and belong to it."""

import shutil

import numpy as np
import pytest

from compare.cases import cell
from compare.grids import logits_of
from demo.small_demo import small_demo
from tpkd.compare.owner.answers import cell_answers, keep_missing
from tpkd.compare.run import read_comparison
from tpkd.errors import InputError
from tpkd.quality.answers import answer_files, read_answers


@pytest.fixture(scope="module")
def made():
    return small_demo().report.parent


@pytest.fixture
def lone(made, tmp_path):
    """One cell of the grid, by itself: its record, its run directory and what was kept."""
    one = read_comparison(made).cells[0]
    shutil.copytree(made / one.directory, tmp_path / one.directory, ignore=shutil.ignore_patterns("checkpoints"))
    (tmp_path / "answers").mkdir()
    for path in answer_files(made / "answers" / one.name):
        shutil.copy(path, tmp_path / "answers")
    return tmp_path, one


def test_every_cell_and_the_teacher_keep_their_answers(made):
    labels = np.load(made / "labels.npy")
    for one in read_comparison(made).cells:
        found = read_answers(made / "answers" / one.name)
        assert found.quality.logits_sha256 == one.logits_sha256
        assert np.array_equal(found.labels, labels)
        assert np.array_equal(found.predictions, logits_of(made, one).argmax(1))
    teacher = read_answers(made / "answers" / "teacher")
    assert np.array_equal(teacher.predictions, np.load(made / "teacher.npy").argmax(1))


def test_answers_outlive_the_logits(lone):
    directory, one = lone
    (directory / one.directory / "test-logits.safetensors").unlink()
    assert cell_answers(directory, one).quality.accuracy == pytest.approx(one.accuracy)


def test_a_cell_from_before_is_scored_from_its_run(lone):
    directory, one = lone
    kept = cell_answers(directory, one)
    for path in answer_files(directory / "answers" / one.name):
        path.unlink()
    scored = cell_answers(directory, one)
    assert np.array_equal(scored.predictions, kept.predictions)
    assert scored.quality.answers_sha256 is None
    keep_missing(directory, [one])
    assert read_answers(directory / "answers" / one.name).quality == kept.quality


def test_answers_of_another_run_of_the_cell_are_not_used(lone):
    directory, one = lone
    (directory / one.directory / "test-logits.safetensors").unlink()
    other = cell(one.objective, one.seed, 0.5, logits_sha256="0" * 64)
    assert cell_answers(directory, other) is None


def test_damaged_answers_are_refused_by_a_report_and_replaced_by_a_comparison(lone):
    directory, one = lone
    path = answer_files(directory / "answers" / one.name)[1]
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(InputError, match=r"\.npz: expected SHA-256"):
        cell_answers(directory, one)
    keep_missing(directory, [one])
    assert path.read_bytes() == whole


def test_without_logits_damaged_answers_stay_as_they_are(lone):
    directory, one = lone
    (directory / one.directory / "test-logits.safetensors").unlink()
    path = answer_files(directory / "answers" / one.name)[1]
    path.write_bytes(b"")
    keep_missing(directory, [one, cell("kd", 1, None)])
    assert path.read_bytes() == b""
