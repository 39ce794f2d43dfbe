"""What an audit is of: files, or a grid or run that knows its own."""

from pathlib import Path

import numpy as np
import pytest

from audit.cases import make_case
from demo.small_demo import small_demo
from tpkd.audit.run import audit_files
from tpkd.audit.sources import MOST_STUDENTS, USUAL, find_sources
from tpkd.diagnosis.record import DiagnosisRecord
from tpkd.errors import InputError


@pytest.fixture(scope="module")
def grid():
    return small_demo().report.parent


def test_a_grid_knows_its_files_and_data(grid):
    found = find_sources([grid])
    seed = small_demo().comparison.seeds[0]
    assert [path.stem for path in found.students] == [f"{objective}-{seed}" for objective in USUAL]
    assert found.teacher == grid / "teacher.npy"
    assert found.labels == grid / "labels.npy"
    assert (found.dataset.name, found.dataset.split) == ("digits", "test")
    np.testing.assert_array_equal(found.dataset.labels, np.load(found.labels))


def test_numbers_of_a_grid_are_those_of_its_diagnoses(grid, tmp_path):
    record = audit_files(find_sources([grid]), tmp_path / "audit")
    for student in record.students:
        kept = DiagnosisRecord.from_json((grid / student.file).with_suffix(".json").read_text()).students[0]
        assert student.blocked == kept.blocked_examples
        assert student.transfer_cost == pytest.approx(kept.all["transfer_cost"], rel=1e-9)


def test_cells_are_chosen_by_name(grid):
    seed = small_demo().comparison.seeds[0]
    assert [path.stem for path in find_sources([grid], cells=[f"dkd-{seed}"]).students] == [f"dkd-{seed}"]
    with pytest.raises(InputError, match=rf"--cells: expected finished cells, found 'tpdk-{seed}'; did you mean"):
        find_sources([grid], cells=[f"tpdk-{seed}"])


def test_a_run_has_labels_and_data_but_no_teacher(grid):
    seed = small_demo().comparison.seeds[0]
    run = grid / "kd" / f"seed-{seed}"
    found = find_sources([run], teacher=grid / "teacher.npy")
    assert found.students == (run / "test-logits.safetensors",) == (found.labels,)
    assert found.dataset.name == "digits"
    assert find_sources([run], teacher=grid / "teacher.npy", data="none").dataset is None
    with pytest.raises(InputError, match="--teacher: expected logits of the teacher on the test part"):
        find_sources([run])


def test_a_run_is_audited_from_its_own_file(grid, tmp_path):
    run = grid / "kd" / f"seed-{small_demo().comparison.seeds[0]}"
    record = audit_files(find_sources([run], teacher=grid / "teacher.npy"), tmp_path / "audit")
    assert record.examples == len(np.load(grid / "labels.npy"))


def test_files_need_teacher_and_labels(tmp_path):
    case = make_case(tmp_path).sources()
    for missing in ("teacher", "labels"):
        given = {"teacher": case.teacher, "labels": case.labels, missing: None}
        with pytest.raises(InputError, match=f"--{missing}: expected a file beside files of logits, found none"):
            find_sources(case.students, **given)
    with pytest.raises(InputError, match="--cells: expected the directory of a grid"):
        find_sources(case.students, teacher=case.teacher, labels=case.labels, cells=["kd-42"])


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"expected a grid or a finished run, found no test-logits.safetensors"):
        find_sources([tmp_path])


def test_more_students_than_can_be_compared_are_refused():
    many = [Path(f"{number}.npy") for number in range(MOST_STUDENTS + 1)]
    with pytest.raises(InputError, match=r"students: expected at most 8, found 9: 0.npy, 1.npy, 2.npy and 6 more"):
        find_sources(many, teacher=Path("t.npy"), labels=Path("l.npy"))
