"""Theorems 1 to 4 over generated and adversarial outputs, and proof that each check can fail."""

import pytest
import torch

from strategies import KINDS, make_pairs, one_negative_deviation, one_positive_deviation
from theory.checks import (
    VIOLATIONS,
    check_theorem_1,
    check_theorem_2,
    check_theorem_3,
    check_theorem_4,
)
from tpkd.geometry import directions, split
from tpkd.theory import diagnose, is_blocked, strict_blocking_log_odds, transfer_cost

CLASSES = [3, 10, 100]


def border_pairs(num_classes, count=200, seed=0):
    """Students on either side of the blocking border in equal shares, some by less than 1e-3 of log-odds."""
    generator = torch.Generator().manual_seed(seed)
    student = torch.randn(count, num_classes, generator=generator, dtype=torch.float64)
    teacher = torch.randn(count, num_classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(num_classes, (count,), generator=generator)
    shift = torch.rand(count, generator=generator, dtype=torch.float64) - 0.5
    # Not closer than 2e-4: a move across a nearer border changes the loss by less than its rounding.
    near = shift.sign() * 2e-4 + 6e-4 * shift
    shift = torch.where(torch.rand(count, generator=generator) < 0.3, near, shift)
    lead = strict_blocking_log_odds(student, teacher, labels) - split(student, labels).log_odds + shift
    return student.scatter_add(-1, labels.unsqueeze(-1), lead.unsqueeze(-1)), teacher, labels


@pytest.mark.parametrize("num_classes", CLASSES)
def test_theorem_1_full_imitation_blocking(num_classes):
    """thm:block in both directions, eq:block as an inequality."""
    student, teacher, labels = border_pairs(num_classes)
    blocked = is_blocked(student, teacher, labels)
    assert 0.2 <= blocked.double().mean() <= 0.8
    check_theorem_1(student, teacher, labels, blocked)


@pytest.mark.parametrize("num_classes", CLASSES)
@pytest.mark.parametrize("wrong", [lambda s, t, y: ~is_blocked(s, t, y), lambda s, t, y: is_blocked(t, s, y)])
def test_theorem_1_rejects_a_wrong_blocking_test(num_classes, wrong):
    student, teacher, labels = border_pairs(num_classes)
    with pytest.raises(AssertionError):
        check_theorem_1(student, teacher, labels, wrong(student, teacher, labels))


@pytest.mark.parametrize("num_classes", CLASSES)
@pytest.mark.parametrize("error", [1e-3, -1e-3])
def test_theorem_1_rejects_a_border_wrong_by_1e_3(num_classes, error):
    student, teacher, labels = border_pairs(num_classes, count=1000)
    with pytest.raises(AssertionError):
        check_theorem_1(student, teacher, labels, is_blocked(student, teacher, labels, tolerance=error))


@pytest.mark.parametrize("num_classes", CLASSES)
@pytest.mark.parametrize("kind", ["random", "ties", "blocked", "certain", "wrong", "sparse", "tiny"])
def test_theorem_2_minimum_compensation(num_classes, kind):
    """thm:cost and eq:mincost: both directions, from just below to just above the cost."""
    student, teacher, labels = make_pairs(kind, 300, num_classes, seed=1)
    check_theorem_2(student, teacher, labels, transfer_cost(student, teacher, labels))


@pytest.mark.parametrize("num_classes", CLASSES)
@pytest.mark.parametrize("error", [1e-3, -1e-3])
def test_theorem_2_rejects_a_cost_wrong_by_1e_3(num_classes, error):
    student, teacher, labels = make_pairs("random", 300, num_classes, seed=1)
    with pytest.raises(AssertionError):
        check_theorem_2(student, teacher, labels, transfer_cost(student, teacher, labels) + error)


@pytest.mark.parametrize("num_classes", CLASSES)
@pytest.mark.parametrize("kind", KINDS)
def test_theorem_3_retained_conditional_learning(num_classes, kind):
    """thm:retention, prop:alignment, eq:retention, eq:relation-angle, eq:relation-ball."""
    student, teacher, labels = make_pairs(kind, 500, num_classes, seed=2)
    check_theorem_3(directions(student, teacher, labels), labels)


@pytest.mark.parametrize("num_classes", CLASSES)
@pytest.mark.parametrize("kind", KINDS)
def test_theorem_4_joint_alignment(num_classes, kind):
    """prop:full-alignment, eq:full-alignment, eq:alignment-expansion."""
    student, teacher, labels = make_pairs(kind, 500, num_classes, seed=3)
    check_theorem_4(directions(student, teacher, labels), labels)


@pytest.mark.parametrize("tight", [one_positive_deviation, one_negative_deviation])
@pytest.mark.parametrize("num_classes", CLASSES)
def test_theorems_3_and_4_hold_at_the_tight_constructions(num_classes, tight):
    case = tight(num_classes, size=0.5, confidence=1 - 1e-7)
    labels = torch.tensor([case.label])
    step = directions(case.student.unsqueeze(0), case.teacher.unsqueeze(0), labels)
    check_theorem_3(step, labels)
    check_theorem_4(step, labels)


@pytest.mark.parametrize("violation", VIOLATIONS)
@pytest.mark.parametrize("check", [check_theorem_3, check_theorem_4])
@pytest.mark.parametrize("num_classes", CLASSES)
def test_theorems_3_and_4_reject_a_wrong_direction(num_classes, check, violation):
    student, teacher, labels = make_pairs("random", 200, num_classes, seed=4)
    wrong = VIOLATIONS[violation](directions(student, teacher, labels), labels)
    with pytest.raises(AssertionError):
        check(wrong, labels)


def test_diagnosis_is_blocked_where_theorem_1_says():
    student, teacher, labels = border_pairs(10)
    assert torch.equal(diagnose(student, teacher, labels).blocked, is_blocked(student, teacher, labels))
