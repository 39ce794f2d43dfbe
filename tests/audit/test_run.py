"""An audit as a folder: complete or not there, and never in the place of anything else."""

import json

import numpy as np
import pytest

from audit.cases import HOSTILE, make_case
from tpkd.audit.run import check_folder
from tpkd.errors import InputError


def test_the_folder_is_complete(tmp_path):
    make_case(tmp_path).audit()
    found = sorted(path.name for path in (tmp_path / "audit").iterdir())
    assert found == ["audit.json", "data", "index.html"]
    data = sorted(path.name for path in (tmp_path / "audit" / "data").iterdir())
    assert data == ["details-0", "details-1", "index-0.js", "index-1.js", "index.js", "inputs", "record.js"]


def test_the_same_inputs_give_the_same_bytes(tmp_path):
    case = make_case(tmp_path)
    case.audit(tmp_path / "one")
    case.audit(tmp_path / "two")
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.*") if path.is_file())
    assert len(files) > 10
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


def test_an_earlier_audit_is_replaced_and_other_files_in_it_stay(tmp_path):
    case = make_case(tmp_path)
    case.audit()
    (tmp_path / "audit" / "notes.txt").write_text("mine")
    case.audit(students=1)
    assert not (tmp_path / "audit" / "data" / "details-1").exists()
    assert len(json.loads((tmp_path / "audit" / "audit.json").read_text())["students"]) == 1
    assert (tmp_path / "audit" / "notes.txt").read_text() == "mine"
    assert not list((tmp_path / "audit").glob(".*"))


def test_a_folder_of_other_files_is_refused(tmp_path):
    case = make_case(tmp_path / "case")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="expected a new or empty directory or an earlier audit, found other files"):
        case.audit(tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    (tmp_path / "link").symlink_to(tmp_path / "case")
    for place in (tmp_path / "link", tmp_path / "mine" / "notes.txt"):
        with pytest.raises(InputError, match="found a link or a file"):
            check_folder(place)


def test_a_wrong_file_leaves_an_earlier_audit_as_it_was(tmp_path):
    case = make_case(tmp_path)
    case.audit()
    before = (tmp_path / "audit" / "data" / "record.js").read_bytes()
    broken = case.students[1].copy()
    broken[7, 2] = np.nan
    np.save(tmp_path / "student-1.npy", broken)
    with pytest.raises(InputError, match=r"student-1.npy: row 7: expected finite logits, found nan at class 2"):
        case.audit()
    assert (tmp_path / "audit" / "data" / "record.js").read_bytes() == before


def test_rows_to_ignore_are_left_out(tmp_path):
    case = make_case(tmp_path)
    labels = case.labels.copy()
    labels[[0, 3]] = -100
    np.save(tmp_path / "labels.npy", labels)
    record = case.audit(kind=None)
    assert (record.examples, record.left_out) == (148, 2)
    assert record.notes == ("2 rows are left out: their label is -100.",)


def test_soft_labels_and_truncated_teachers_are_refused(tmp_path):
    case = make_case(tmp_path)
    np.save(tmp_path / "labels.npy", np.full((150, 5), 0.2))
    with pytest.raises(InputError, match="expected one class per example and a whole teacher, found probabilities"):
        case.audit(kind=None)
    assert not (tmp_path / "audit").exists()


def test_hostile_names_are_data(tmp_path):
    names = (HOSTILE, "\ud800", "b", "c", "x" * 5000)
    record = make_case(tmp_path, class_names=names).audit(kind=None)
    assert record.class_names[:2] == (HOSTILE, "\ufffd")
    for path in (tmp_path / "audit").rglob("*.js"):
        assert "<" not in path.read_text(encoding="ascii")
    assert "<img" not in (tmp_path / "audit" / "index.html").read_text()
