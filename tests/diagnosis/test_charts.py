"""Every chart of a student is drawn once, and says its numbers to those who do not see it."""

from dataclasses import replace

import pytest

from diagnosis.files_of import write_files
from diagnosis.truncated_files import write_cut
from tpkd.diagnosis.charts import student_charts, trend_charts
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.run import diagnose_files
from tpkd.report.numbers import nats, nats_down, share, share_up


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


def test_charts_of_a_truncated_teacher_say_which_way_their_numbers_bound(tmp_path):
    files = write_files(tmp_path)
    record = diagnose_files(open_inputs([files.student, files.student], write_cut(files, 2), files.labels))
    student = record.students[0]
    charts = student_charts(student)
    assert "blocked examples, at most" in charts["blocked"].svg
    assert f"mean ≥ {nats_down(student.all['transfer_cost'])}" in charts["transfer-cost"].svg
    assert "transfer cost, at least (nats)" in charts["transfer-cost"].svg
    assert "mean V(B) left, at least (nats)" in charts["frontier"].svg
    assert "half for ~ " in charts["frontier"].svg
    assert f"≥ {nats_down(student.decomposition.conditional)}" in charts["decomposition"].svg
    assert f">{nats(student.decomposition.confidence)}<" in charts["decomposition"].svg
    assert f"at least {nats_down(student.frontier.values[0])} nats" in charts["frontier"].description
    last = student.confidence_bins[-1].blocked_share
    assert f"at most {share_up(last)}" in charts["blocked"].description or last is None
    titles = [chart.title for chart in trend_charts(record)]
    assert titles == [
        "Blocked share, at most",
        "Conditional loss left, on average, at least",
        "Price of exact transfer, on average, at least",
        "Label loss and teacher KL (at least), on average",
    ]


def test_soft_labels_have_a_third_part(record):
    student = record.students[0]
    soft = replace(student, decomposition=replace(student.decomposition, inside=0.125))
    chart = student_charts(soft)["decomposition"]
    assert chart.title == "The teacher's KL in three parts"
    assert "0.125 are differences among the correct classes" in chart.description
    assert "correct classes</text>" in chart.svg
