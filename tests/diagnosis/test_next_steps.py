"""The advice follows from the record alone, one branch for each state, and never says more than its numbers."""

import math
from dataclasses import replace

import pytest
import torch

from diagnosis.files_of import write_files
from diagnosis.truncated_files import write_cut
from tpkd.competence.record import Competence
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.next_steps import LEVEL, NOTHING_LEFT, clearly_worse, most_that_moves, next_steps
from tpkd.diagnosis.record import DiagnosisRecord, WithoutLabel
from tpkd.diagnosis.run import diagnose_files
from tpkd.report.numbers import nats, nats_down, share, share_up

GOOD = Competence(2_000, 0.1, 0.9, False, False, 0.8, 0.75)
SUBSTANTIAL = 0.52349


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    files = write_files(tmp_path_factory.mktemp("whole"))
    return diagnose_files(open_inputs([files.student], files.teacher, files.labels)).students[0]


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    files = write_files(tmp_path_factory.mktemp("cut"))
    return diagnose_files(open_inputs([files.student], write_cut(files, 2), files.labels)).students[0]


def changed(student, *, blocked=0.589, left=SUBSTANTIAL, left_blocked=0.6, competence=GOOD):
    return replace(
        student,
        examples=2_000,
        blocked_examples=round(2_000 * blocked),
        blocked_share=blocked,
        all={**student.all, "conditional_loss": left},
        blocked={**student.blocked, "conditional_loss": left_blocked if blocked else None},
        competence=competence,
    )


def advice(*students):
    sentences = next_steps(DiagnosisRecord("t", "y", students))
    assert 2 <= len(sentences) <= 4
    return sentences


def test_too_few_examples_come_before_everything(student):
    found = replace(GOOD, examples=3, chance=0.66667, near_chance=True, too_few=True)
    first, *_ = sentences = advice(changed(student, competence=found))
    assert first.startswith("Diagnose more examples first: with 3, and 66.7 % of them in one class,")
    assert "tpkd compare" not in " ".join(sentences)


def test_a_teacher_near_chance_is_not_to_be_learned_from(student):
    found = replace(GOOD, teacher_accuracy=0.11, chance=0.107, near_chance=True)
    first, *others = advice(changed(student, competence=found))
    assert first.startswith("Do not distil from this teacher yet: it is near chance, right on 11.0 % of 2,000 examples")
    assert "10.7 %" in first
    assert "order of the labels" in others[0]
    assert "tpkd compare" not in " ".join(others)


def test_nothing_left_says_so_with_the_inequality_it_rests_on(student):
    first, second = advice(changed(student, left=0.00321))
    assert first.startswith("Nothing is left to learn from this teacher about the incorrect classes: 0.003 nats")
    assert f"at most {share(math.sqrt(0.00321 / 2))} of their probability" in first
    assert "Pinsker" in first
    assert "Train on the labels alone (ce)" in second
    assert f"{nats(student.decomposition.confidence)} nats of difference in confidence" in second


def test_a_student_that_equals_its_teacher_has_nothing_left(student):
    first, _ = advice(changed(student, left=0.0, left_blocked=0.0, blocked=1.0))
    assert "0.000 nats of conditional loss move at most 0.0 %" in first


@pytest.mark.parametrize(("left", "nothing"), [(0.00499, True), (0.00501, False)])
def test_nothing_begins_where_the_inequality_says(student, left, nothing):
    assert pytest.approx(0.005) == 2 * NOTHING_LEFT**2
    assert advice(changed(student, left=left))[0].startswith("Nothing is left") == nothing


def test_no_blocked_example_is_no_conflict_yet(student):
    first, second, third = advice(changed(student, blocked=0.0))
    assert first.startswith("Ordinary distillation (kd) is not yet in conflict with the labels: none of 2,000 examples")
    assert "0.523 nats" in first
    assert second.startswith("Diagnose later students too")
    assert "tpkd compare" in third


def test_most_of_it_on_blocked_examples(student):
    first, second = advice(changed(student))
    assert first.startswith("TPKD can still teach what full imitation cannot without giving back margins")
    assert f"{share(0.589 * 0.6 / SUBSTANTIAL)} of the conditional loss that is left (0.523 nats on average)" in first
    assert "on the 58.9 % of examples that are blocked" in first
    assert "tpkd compare CONFIG --methods ce,kd,tpkd" in second


def test_most_of_it_elsewhere(student):
    first, second, third = advice(changed(student, blocked=0.12, left_blocked=0.3))
    assert first.startswith("TPKD can still teach, most of it where full imitation is not blocked")
    assert f"{share(0.12 * 0.3 / SUBSTANTIAL)} of the conditional loss" in first
    assert "12.0 % of examples" in first
    assert "ordinary distillation (kd) may do as well there" in second
    assert "tpkd compare" in third


def test_a_truncated_teacher_is_read_as_bounds(cut):
    first, second, third = advice(changed(cut))
    assert f"at least {nats_down(SUBSTANTIAL)} nats of conditional loss are left on average" in first
    assert f"blocked on at most {share_up(0.589)} of the examples" in first
    assert "only a teacher that kept more classes can tell" in second
    assert "tpkd compare" in third
    first, *_ = advice(changed(cut, blocked=0.0))
    assert "none of 2,000 examples is blocked, and at least 0.523 nats" in first
    lacking = replace(changed(cut, blocked=0.0), without_label=WithoutLabel(50, 0.1, 0.1))
    assert "none of 1,950 examples is blocked" in advice(lacking)[0]


def test_little_left_of_what_was_kept_is_not_nothing_left(cut):
    first, second = advice(changed(cut, left=0.00321))
    assert first.startswith("What this teacher kept leaves next to nothing to learn: at least 0.003 nats")
    assert "labels alone" not in first + second
    assert "more classes kept" in second


@pytest.mark.parametrize("blocked", [0.0, 0.12, 0.589])
@pytest.mark.parametrize("left", [0.001, SUBSTANTIAL])
def test_a_teacher_that_is_clearly_worse_may_be_the_other_file(student, blocked, left):
    worse = replace(GOOD, teacher_accuracy=0.7, student_accuracy=0.9, agreement=0.7)
    *_, last = advice(changed(student, blocked=blocked, left=left, left_blocked=left / 2, competence=worse))
    assert last.startswith("The student is right on 90.0 % and the teacher on 70.0 % of 2,000 examples")
    assert "not exchanged" in last
    *_, last = advice(changed(student, blocked=blocked, left=left, left_blocked=left / 2))
    assert "exchanged" not in last


def test_luck_alone_rarely_makes_a_teacher_clearly_worse():
    """Teacher and student that are equally good, and differ on a third of the examples."""
    generator, examples = torch.Generator().manual_seed(0), 400
    draws = torch.rand(2_000, examples, generator=generator)
    teacher_only, student_only = draws < 1 / 6, (draws >= 1 / 6) & (draws < 1 / 3)
    found = 0
    for left, right in zip(teacher_only.sum(-1).tolist(), student_only.sum(-1).tolist(), strict=True):
        agreement = 1 - (left + right) / examples
        accuracy = (0.6 * examples + left) / examples, (0.6 * examples + right) / examples
        found += clearly_worse(Competence(examples, 0.1, accuracy[0], False, False, accuracy[1], agreement))
    assert found <= LEVEL * 2_000
    assert clearly_worse(Competence(examples, 0.1, 0.6, False, False, 0.6 + 1 / 3, 2 / 3))


def test_pinskers_bound_holds_on_average():
    generator = torch.Generator().manual_seed(0)
    for scale in (0.01, 0.3, 3.0):
        q, r = (
            (scale * torch.randn(500, 9, generator=generator, dtype=torch.float64)).log_softmax(-1) for _ in range(2)
        )
        loss = (q.exp() * (q - r)).sum(-1).mean().item()
        moved = ((q.exp() - r.exp()).abs().sum(-1) / 2).mean().item()
        assert moved <= most_that_moves(loss)


def test_older_records_without_answers_get_the_same_advice(student):
    assert advice(changed(student, competence=None)) == advice(changed(student))


def test_the_last_student_is_meant(student):
    assert advice(changed(student, blocked=0.0), changed(student)) == advice(changed(student))


def test_no_sentence_promises_accuracy(student, cut):
    for one in (student, cut):
        for settings in ({}, {"blocked": 0.0}, {"left": 0.001}, {"blocked": 0.1, "left_blocked": 0.1}):
            for sentence in advice(changed(one, **settings)):
                assert "accura" not in sentence
                assert "will" not in sentence.split()
