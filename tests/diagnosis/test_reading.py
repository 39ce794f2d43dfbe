"""What people read says what the record says, and never more."""

from dataclasses import replace

import pytest

from diagnosis.files_of import write_files
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.reading import half_budget, read_student, read_trend
from tpkd.diagnosis.record import Decomposition, DiagnosisRecord, FrontierCurve
from tpkd.diagnosis.run import diagnose_files
from tpkd.report.numbers import nats, probability, share


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    files = write_files(tmp_path_factory.mktemp("reading"))
    return diagnose_files(open_inputs([files.student], files.teacher, files.labels)).students[0]


@pytest.mark.parametrize("write", [nats, share, probability])
def test_nothing_positive_is_written_as_zero_and_nothing_below_one_as_one(write):
    assert write(1e-9) != write(0.0)
    assert write(None) == "none"
    if write is not nats:
        assert write(1 - 1e-9) != write(1.0)


def test_the_papers_table_in_words(student):
    means = {**student.blocked, "conditional_loss": 1.803, "transfer_cost": 7.569}
    paper = replace(
        student, examples=16_000, blocked_examples=9_424, blocked_share=0.589, blocked=means, competence=None
    )
    first, second = read_student(paper)[:2]
    assert first.startswith("Full imitation is blocked on 58.9 % of your examples (n = 9,424 of 16,000)")
    assert second.startswith("1.803 nats of conditional knowledge are left there on average; exact transfer would cost")
    assert "7.569 nats of log-odds" in second


def test_an_empty_blocked_set_speaks_of_all_examples(student):
    none = replace(student, blocked_examples=0, blocked_share=0.0, blocked=dict.fromkeys(student.blocked))
    text = " ".join(read_student(none))
    assert "blocked on none" in text
    assert "n = 0" in text
    assert f"Over all examples, {nats(student.all['conditional_loss'])} nats" in text
    assert "none nats" not in text


def test_a_student_that_equals_its_teacher_is_told_so_and_nothing_else(student):
    """Any step towards the teacher gives back a margin, because there is none: true, and no answer."""
    done = replace(
        student,
        blocked_examples=student.examples,
        blocked_share=1.0,
        decomposition=Decomposition(0.0, 0.0, None),
        frontier=FrontierCurve(5, (0.0, 1.0), (0.0, 0.0)),
    )
    (sentence,) = read_student(done)
    assert "equal the teacher's" in sentence
    assert "nothing left to imitate" in sentence
    assert "margin" not in sentence


def test_a_student_that_knows_all_of_the_incorrect_classes_is_told_so(student):
    done = replace(student, frontier=FrontierCurve(5, (0.0, 1.0), (0.0, 0.0)))
    assert "No log-odds are needed" in " ".join(read_student(done))


def test_the_budget_of_half_is_the_records(student):
    curve = FrontierCurve(5, (0.0, 0.2, 0.4), (1.0, 0.7, 0.4), half_budget=0.34712)
    assert half_budget(curve) == 0.34712
    assert "can be had for 0.347 nats of log-odds" in " ".join(read_student(replace(student, frontier=curve)))


def test_a_record_without_it_gives_a_bound_between_its_points(student):
    """V is convex, so that a chord lies above it and crosses half of it later."""
    curve = FrontierCurve(5, (0.0, 0.2, 0.4), (1.0, 0.7, 0.4))
    assert half_budget(curve) == pytest.approx(0.2 + 0.2 * (0.7 - 0.5) / (0.7 - 0.4))
    assert "can be had for at most 0.333 nats of log-odds" in " ".join(read_student(replace(student, frontier=curve)))


def test_a_curve_that_never_halves_says_more_than(student):
    curve = FrontierCurve(5, (0.0, 1.0), (1.0, 0.9))
    assert half_budget(curve) is None
    assert "for more than 1 nat of log-odds" in " ".join(read_student(replace(student, frontier=curve)))


def test_the_trend_compares_first_and_last(student):
    later = replace(student, blocked_share=0.9)
    text = read_trend(DiagnosisRecord("t", "y", (student, student, later)))
    assert f"from {share(student.blocked_share)} to 90.0 %" in text


def test_no_sentence_promises_accuracy(student):
    for sentence in read_student(student):
        assert "accura" not in sentence
        assert "will" not in sentence
