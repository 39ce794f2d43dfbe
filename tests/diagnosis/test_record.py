"""A record of a diagnosis is JSON there and back, and those from before a field are read too."""

import pytest

from diagnosis.files_of import write_files
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
