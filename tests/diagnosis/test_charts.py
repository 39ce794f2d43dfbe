"""Every chart of a student is drawn once, and says its numbers to those who do not see it."""

import pytest

from diagnosis.files_of import write_files
from tpkd.diagnosis.charts import student_charts, trend_charts
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.run import diagnose_files
from tpkd.report.numbers import nats, share


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    files = write_files(tmp_path_factory.mktemp("files"))
    return diagnose_files(open_inputs([files.student, files.teacher], files.teacher, files.labels))


def test_the_descriptions_say_the_numbers(record):
    student = record.students[0]
    charts = student_charts(student)
    names = ["blocked", "confidence", "conditional-loss", "transfer-cost", "frontier", "decomposition"]
    assert list(charts) == names
    assert nats(student.all["conditional_loss"]) in charts["conditional-loss"].description
    assert nats(student.frontier.values[0]) in charts["frontier"].description
    assert nats(student.decomposition.confidence) in charts["decomposition"].description


def test_the_trend_goes_from_the_first_student_to_the_last(record):
    blocked, *others = trend_charts(record)
    ends = [share(student.blocked_share) for student in record.students]
    assert f"blocked: {ends[0]} to {ends[1]}" in blocked.description
    assert len(others) == 3
