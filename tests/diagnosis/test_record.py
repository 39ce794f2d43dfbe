"""A record of a diagnosis is JSON there and back, and those from before a field are read too."""

import pytest

from diagnosis.files_of import write_files
from diagnosis.truncated_files import write_cut
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.record import DiagnosisRecord
from tpkd.diagnosis.run import diagnose_files


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    files = write_files(tmp_path_factory.mktemp("files"))
    return diagnose_files(open_inputs([files.student, files.teacher], files.teacher, files.labels))


def test_a_record_comes_back_whole_and_an_older_one_without_what_came_later(record):
    assert DiagnosisRecord.from_json(record.to_json()) == record
    older = record.to_dict()
    for student in older["students"]:
        del student["competence"]
        student["frontier"].pop("half_budget", None)
    read = DiagnosisRecord.from_dict(older)
    assert read.students[0].competence is None
    assert read.students[0].frontier.half_budget is None
    assert read.students[0].all == record.students[0].all


STUDENT_KEYS = [
    *("file", "examples", "num_classes", "blocked_examples", "blocked_share", "blocked", "all", "retention_bound"),
    *("decomposition", "conditional_loss", "transfer_cost", "confidence_bins", "frontier", "classes", "pairs"),
    *("costliest", "competence"),
]


def test_a_whole_teacher_and_classes_as_labels_add_no_key(record):
    """Readers of earlier versions refuse keys that they do not know."""
    data = record.to_dict()
    assert list(data) == ["schema", "teacher", "labels", "students"]
    for student in data["students"]:
        assert list(student) == STUDENT_KEYS
        assert list(student["decomposition"]) == ["confidence", "conditional", "conditional_share"]
        assert list(student["all"]) == [
            *("blocked", "confidence", "teacher_confidence", "label_loss", "imitation_loss", "conditional_loss"),
            *("transfer_cost", "min_confidence", "compensation", "retention", "update_cosine"),
        ]


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    files = write_files(tmp_path_factory.mktemp("cut"))
    inputs = open_inputs([files.student], write_cut(files, 2, without_label=(3, 5)), files.labels)
    return diagnose_files(inputs, beta=1.0, temperature=4.0)


def test_a_truncated_teacher_adds_keys_and_comes_back_whole(cut):
    data = cut.to_dict()
    assert list(data) == ["schema", "teacher", "labels", "students", "truncation", "beta", "temperature"]
    assert data["truncation"] == {"k": 2, "dtype": "float64", "rest_stored": True}
    assert (data["beta"], data["temperature"]) == (1.0, 4.0)
    (student,) = data["students"]
    assert list(student) == [*STUDENT_KEYS, "bounds", "without_label"]
    assert student["bounds"]["blocked"] == "upper"
    assert DiagnosisRecord.from_json(cut.to_json()) == cut


def test_a_record_from_before_truncation_is_one_of_a_whole_teacher(cut):
    older = cut.to_dict()
    for key in ("truncation", "beta", "temperature"):
        del older[key]
    for key in ("bounds", "without_label"):
        del older["students"][0][key]
    read = DiagnosisRecord.from_dict(older)
    assert (read.truncation, read.soft_labels, read.beta, read.temperature) == (None, None, 0.5, 1.0)
    assert read.students[0].bounds is None
    assert read.students[0].known_examples == read.students[0].examples
