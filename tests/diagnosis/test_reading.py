"""What people read says what the record says, and never more."""

from dataclasses import replace

import pytest

from diagnosis.files_of import write_files
from diagnosis.truncated_files import write_cut
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.reading import half_budget, read_student, read_trend, record_notes
from tpkd.diagnosis.record import (
    Decomposition,
    DiagnosisRecord,
    FrontierCurve,
    SoftLabels,
    Truncation,
    WithoutLabel,
)
from tpkd.diagnosis.run import diagnose_files
from tpkd.report.numbers import nats, nats_down, probability, share, share_up


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


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    files = write_files(tmp_path_factory.mktemp("cut"))
    return diagnose_files(open_inputs([files.student], write_cut(files, 2), files.labels))


def test_bounds_are_said_in_words(cut):
    student = cut.students[0]
    assert student.blocked_examples > 0
    text = " ".join(read_student(student))
    assert f"blocked on at most {share_up(student.blocked_share)} of your examples" in text
    assert f"(n at most {student.blocked_examples} of 120)" in text
    left, cost = (nats_down(student.blocked[name]) for name in ("conditional_loss", "transfer_cost"))
    assert f"On the examples that may be blocked, at least {left} nats of conditional knowledge are left" in text
    assert f"exact transfer would cost at least {cost} nats" in text
    assert f"Of at least {nats_down(student.all['imitation_loss'])} nats between student and teacher" in text
    assert f"{nats(student.decomposition.confidence)} are a difference in confidence and at least" in text
    assert "Half of all conditional knowledge of the completed teacher can be had" in text
    assert "descent towards the completed teacher on average" in text
    assert "any step closer to the whole teacher gives back a margin" not in text
    assert "more examples" not in text


def test_examples_without_the_labels_own_are_counted_apart(cut):
    without = WithoutLabel(14, 0.8349, 2.3917)
    lacking = replace(cut.students[0], without_label=without)
    text = " ".join(read_student(lacking))
    assert "of the examples whose label's log-probability is known (n at most" in text
    assert "On 14 more examples the teacher did not keep the label's log-probability. They enter no bound" in text
    assert "0.835 nats are left there on average, for 2.392 nats" in text


def test_a_truncated_teacher_that_agrees_is_not_called_equal(cut):
    agreeing = replace(cut.students[0], decomposition=Decomposition(0.0, 0.0, None))
    (sentence,) = read_student(agreeing)
    assert "equal" not in sentence
    assert "agree with everything that the teacher kept" in sentence


def test_notes_say_what_was_kept_and_how_exactly(cut):
    (note,) = record_notes(cut)
    assert "float64 precision" in note
    assert "rest_log_probs" not in note
    (note,) = record_notes(replace(cut, truncation=Truncation(64, "float16", rest_stored=False)))
    assert "top 64 of 6 classes" in note
    assert "float16 precision" in note
    assert "It does not give the total of the other classes (rest_log_probs)" in note


def test_notes_of_soft_labels_and_of_another_step(student):
    record = DiagnosisRecord("t", "y", (student,), soft_labels=SoftLabels(3, 1.5, 0.4061))
    (note,) = record_notes(record)
    assert "up to 3 of them" in note
    assert "0.406 nats" in note
    assert "the class with the largest share" in note
    (note,) = record_notes(DiagnosisRecord("t", "y", (student,), beta=1.0, temperature=4.0))
    assert "beta = 1 and temperature 4" in note


def test_notes_of_ignored_rows_and_one_hot_labels(student):
    (note,) = record_notes(DiagnosisRecord("t", "y", (student,), ignored=1_234))
    assert note == "1,234 rows with the label -100 are left out; 120 examples enter the numbers."
    (note,) = record_notes(DiagnosisRecord("t", "y", (student,), ignored=1))
    assert note.startswith("1 row with the label -100 is left out")
    (note,) = record_notes(DiagnosisRecord("t", "y", (student,), one_hot_labels=True))
    assert note.startswith("The labels are one-hot rows")


def test_three_parts_are_read_with_soft_labels(student):
    soft = replace(student, decomposition=Decomposition(0.5, 0.3, 0.25, 0.2))
    text = " ".join(read_student(soft))
    assert "0.500 are a difference in confidence, 0.200 are differences among the correct classes, and 0.300" in text
    assert "classes and these labels" in text
