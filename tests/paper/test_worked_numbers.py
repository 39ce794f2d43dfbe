"""Every number printed in appendices A.4, A.6, B.5 and of the constants at K = 100, from public functions."""

import math
from fractions import Fraction

import pytest
import torch

from tpkd.geometry import (
    alignment_bound,
    conditional_distortion_limit,
    conditional_loss,
    confidence_axis,
    directions,
    imitation_loss,
    joint_distortion_limit,
    label_loss,
    margins,
    max_log_ratio,
    retention_bound,
    split,
)
from tpkd.theory import (
    ce_only_imitation_loss,
    ce_only_optimum,
    is_blocked,
    log_transfer_path,
    min_confidence,
    min_log_odds,
    retention,
    transfer_cost,
    transfer_endpoint,
)

LABEL = torch.tensor(0)
P = torch.tensor([0.90, 0.07, 0.03], dtype=torch.float64).log()
T = torch.tensor([0.40, 0.25, 0.35], dtype=torch.float64).log()
FIGURE_1 = (P, T, LABEL)


def vector(*values):
    return torch.tensor([float(value) for value in values], dtype=torch.float64)


def exactly(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-13, atol=1e-15)


def test_a4_split_of_the_example():
    student, teacher = split(P, LABEL), split(T, LABEL)
    exactly(student.log_conditional.exp(), vector(Fraction(7, 10), Fraction(3, 10)))
    exactly(teacher.log_conditional.exp(), vector(Fraction(5, 12), Fraction(7, 12)))
    exactly(student.log_confidence.exp(), torch.tensor(0.9, dtype=torch.float64))
    exactly(teacher.log_confidence.exp(), torch.tensor(0.4, dtype=torch.float64))


def test_a4_blocking_cost_and_endpoint():
    """fig:feasibility, eq:mincost: D_inf = 0.664976, a_min = 35/37, p* = (35/37, 5/222, 7/222)."""
    assert is_blocked(*FIGURE_1)
    assert f"{transfer_cost(*FIGURE_1):.6f}" == "0.664976"
    exactly(transfer_cost(*FIGURE_1).exp(), torch.tensor(35 / 18, dtype=torch.float64))
    exactly(min_confidence(*FIGURE_1), torch.tensor(35 / 37, dtype=torch.float64))
    exactly(min_log_odds(*FIGURE_1), torch.tensor(17.5, dtype=torch.float64).log())
    exactly(transfer_endpoint(*FIGURE_1).exp(), vector(Fraction(35, 37), Fraction(5, 222), Fraction(7, 222)))
    assert f"{min_confidence(*FIGURE_1):.3f}" == "0.946"


def test_a4_probability_ratios_of_the_example():
    exactly(margins(P, LABEL).exp(), vector(Fraction(90, 7), 30))
    exactly(margins(transfer_endpoint(*FIGURE_1), LABEL).exp(), vector(42, 30))


@pytest.mark.parametrize("s", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_a4_path_of_the_example(s):
    """eq:path with the example's numbers."""
    point = log_transfer_path(*FIGURE_1, s)
    growth = 0.9 * (1 + 17 * s / 18)
    exactly(split(point, LABEL).log_conditional.exp(), vector(7 / 10 - 17 * s / 60, 3 / 10 + 17 * s / 60))
    exactly(point[0].exp(), torch.tensor(growth / (0.1 + growth), dtype=torch.float64))


def test_a4_teacher_lies_below_the_safe_boundary():
    teacher_increment = split(T, LABEL).log_odds - split(P, LABEL).log_odds
    assert f"{teacher_increment:.5f}" == "-2.60269"
    x = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    log_r = split(P, LABEL).log_conditional.expand(19, 2)
    boundary = max_log_ratio(torch.stack([1 - x, x], -1).log(), log_r)
    assert (boundary > teacher_increment).all()
    assert (boundary >= 0).all()


def test_a4_losses_at_both_ends():
    end = transfer_endpoint(*FIGURE_1)
    assert [f"{label_loss(z, LABEL):.6f}" for z in (P, end)] == ["0.105361", "0.055570"]
    assert f"{conditional_loss(P, T, LABEL):.6f}" == "0.171739"
    assert conditional_loss(end, T, LABEL) < 1e-15
    assert [f"{imitation_loss(z, T, LABEL):.6f}" for z in (P, end)] == ["0.853727", "1.099879"]
    log = math.log
    exactly(
        imitation_loss(P, T, LABEL),
        torch.tensor(0.4 * log(4 / 9) + 0.25 * log(25 / 7) + 0.35 * log(35 / 3), dtype=torch.float64),
    )
    exactly(imitation_loss(end, T, LABEL), torch.tensor(0.4 * log(74 / 175) + 0.6 * log(111 / 10), dtype=torch.float64))


def test_a4_curves_of_figure_1():
    """fig:feasibility, right: label and conditional loss fall along the path while full imitation rises."""
    s = torch.linspace(0, 1, 101, dtype=torch.float64)
    path = log_transfer_path(*FIGURE_1, s)
    stacked = T.expand(path.shape), LABEL.expand(101)
    assert (label_loss(path, stacked[1]).diff() < 0).all()
    assert (conditional_loss(path, *stacked).diff() < 0).all()
    assert (imitation_loss(path, *stacked).diff() > 0).all()
    torch.testing.assert_close(margins(path, stacked[1])[:, 1], margins(P, LABEL)[1].expand(101))


def test_a6_ce_only_optimum_of_the_example():
    """eq:ce-only-optimum: (0.9, 1/24, 7/120); cross-entropy unchanged, the third class's margin smaller."""
    best = ce_only_optimum(*FIGURE_1)
    exactly(best.exp(), vector(Fraction(9, 10), Fraction(1, 24), Fraction(7, 120)))
    exactly(label_loss(best, LABEL), label_loss(P, LABEL))
    assert best[2].exp() > 0.03
    assert margins(best, LABEL)[1] < margins(P, LABEL)[1]
    exactly(ce_only_imitation_loss(*FIGURE_1), imitation_loss(best, T, LABEL))


def test_b5_geometric_example():
    """fig:projection-geometry: u, d, l, w_cond and the angle of 11.54 degrees."""
    student = torch.cat([vector(0.4), 0.6 * vector(0.20, 0.30, 0.50)]).log()
    teacher = torch.cat([vector(0.4), 0.6 * vector(0.30, 0.32, 0.38)]).log()
    step = directions(student, teacher, LABEL)
    exactly(step.conditional, vector(0, -0.10, -0.02, 0.12))
    exactly(step.safe, vector(-0.05, -0.05, -0.02, 0.12))
    exactly(step.compensation, torch.tensor(0.05, dtype=torch.float64))
    exactly(step.pure_conditional, vector(0, Fraction(-1, 15), Fraction(-11, 300), Fraction(31, 300)))
    axis = confidence_axis(LABEL, 4, dtype=torch.float64)
    exactly(axis, vector(-1, Fraction(1, 3), Fraction(1, 3), Fraction(1, 3)))
    assert abs(axis @ step.pure_conditional) < 1e-16
    angle = retention(student, teacher, LABEL).cosine.acos().rad2deg()
    assert f"{angle:.2f}" == "11.54"
    # The figure's own coordinates carry the angle to more digits.
    assert angle.item() == pytest.approx(11.536386237016446, abs=1e-10)


def test_constants_at_100_classes():
    """gamma_100 = 50/99 and what follows; the limits as the experiments print them."""
    gamma = 50 / 99
    assert retention_bound(100) == pytest.approx(gamma, rel=1e-15)
    assert alignment_bound(100) == pytest.approx(2 * math.sqrt(gamma) / (1 + gamma), rel=1e-15)
    assert f"{joint_distortion_limit(100):.6f}" == "5.912499"
    assert f"{conditional_distortion_limit(100):.6f}" == "34.957650"
    assert f"{math.sqrt(retention_bound(100)):.4f}" == "0.7107"
    c = alignment_bound(100)
    assert conditional_distortion_limit(100) == pytest.approx((1 + c) / (1 - c), rel=1e-12)
