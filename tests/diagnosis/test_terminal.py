"""The terminal has a row for each student, and the reading of the last."""

import pytest

from diagnosis.files_of import write_files
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.reading import CAVEAT, read_student, read_trend
from tpkd.diagnosis.run import diagnose_files
from tpkd.diagnosis.terminal import diagnosis_reading, diagnosis_table


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    files = write_files(tmp_path_factory.mktemp("files"))
    return diagnose_files(open_inputs([files.student, files.teacher], files.teacher, files.labels))


def test_rows_and_reading(record):
    assert diagnosis_table(record).row_count == len(record.students) == 2
    assert list(diagnosis_reading(record)) == [read_trend(record), *read_student(record.students[-1]), CAVEAT]
