import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import oracles
from strategies import all_kinds, make_pairs
from theory.checks import in_polar_cone
from tpkd.geometry import imitation_direction, imitation_loss, kl_divergence, margins, split
from tpkd.theory import blocking_gap, diagnose, is_blocked, strict_blocking_log_odds


def closest_safe_imitation(student, teacher, label):
    """argmin of KL(t || p') over predictions with no margin lowered: non-label logits may only fall. L-BFGS-B."""
    t = np.exp(oracles.log_softmax(teacher))
    free = [j for j in range(len(student)) if j != label]

    def loss(fall):
        z = student.copy()
        z[free] -= fall
        log_p = oracles.log_softmax(z)
        return float(-(t * log_p).sum()), (t - np.exp(log_p))[free]

    start = np.full(len(free), 0.3)
    options = {"ftol": 1e-16, "gtol": 1e-12, "maxiter": 5000}
    return minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * len(free), options=options).x


@pytest.mark.parametrize("num_classes", [3, 10])
def test_blocked_exactly_where_the_constrained_minimiser_stays(num_classes):
    """thm:block against a numerical minimiser over the safe set, in both directions."""
    blocked_part = make_pairs("blocked", 25, num_classes, seed=0)
    random_part = make_pairs("tiny", 25, num_classes, seed=1)
    student, teacher, labels = (torch.cat(parts) for parts in zip(blocked_part, random_part, strict=True))
    student = torch.where(torch.arange(50).unsqueeze(-1) < 25, student, student * 500)
    blocked = is_blocked(student, teacher, labels)
    assert 0.2 <= blocked.double().mean() <= 0.8
    for i in range(50):
        fall = closest_safe_imitation(student[i].numpy(), teacher[i].numpy(), labels[i].item())
        # The minimiser leaves 1e-5 of curvature-limited play; a student that is not blocked has far to go.
        assert (np.abs(fall).max() < 1e-4) == bool(blocked[i])


@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_block_identity_holds_for_any_candidate(num_classes):
    """eq:block without its sign conditions: the identity is true for every pair of predictions."""
    student, teacher, labels = make_pairs("random", 300, num_classes, seed=2)
    candidate = make_pairs("random", 300, num_classes, seed=3).student
    gap = blocking_gap(candidate, student, teacher, labels)
    torch.testing.assert_close(gap.change, gap.distance + gap.margin_term, rtol=1e-10, atol=1e-12)
    assert ((gap.margin_term < 0).double().mean() > 0.05).item()


@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_block_gap_is_at_least_the_distance_when_blocked(num_classes):
    """eq:block: leaving a blocked state by a safe move costs at least KL(p || p')."""
    student, teacher, labels = make_pairs("blocked", 300, num_classes, seed=4)
    gains = torch.rand(300, num_classes, dtype=torch.float64).scatter(-1, labels.unsqueeze(-1), 0.0)
    gap = blocking_gap(student - gains, student, teacher, labels)
    assert (gap.margin_term >= 0).all()
    assert (gap.change >= gap.distance - 1e-13).all()


@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_blocking_agrees_with_a_loop_over_log_probabilities(num_classes):
    student, teacher, labels = all_kinds(500, num_classes, seed=5)
    blocked = is_blocked(student, teacher, labels)
    for i, y in enumerate(labels.tolist()):
        log_p, log_t = oracles.log_softmax(student[i].numpy()), oracles.log_softmax(teacher[i].numpy())
        slack = [log_t[j] - log_p[j] for j in range(num_classes) if j != y]
        if min(abs(s) for s in slack) > 1e-9:  # nearer, the loop's own rounding decides
            assert bool(blocked[i]) == all(s >= 0 for s in slack)


def test_a_student_that_equals_its_teacher_is_blocked():
    student, _, labels = all_kinds(200, 7, seed=6)
    assert is_blocked(student, student, labels).all()


@pytest.mark.parametrize("shift", [1.0, 3.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_student_that_equals_its_shifted_teacher_is_blocked(dtype, shift):
    """Logits are known up to a constant only; multiples of 1/64 take this one without rounding."""
    student, _, labels = make_pairs("random", 300, 10, seed=10, dtype=dtype)
    student = (student.clamp(-100, 100) * 64).round() / 64
    for pair in ((student, student + shift), (student + shift, student)):
        assert is_blocked(*pair, labels).all()
        assert diagnose(*pair, labels).blocked.all()


@pytest.mark.parametrize(
    "row", [[0.0, torch.nan, 0.0], [torch.nan, 0.0, 0.0], [0.0, torch.inf, 0.0], [0.0, -torch.inf, -torch.inf]]
)
def test_logits_that_say_neither_yes_nor_no_are_refused(row):
    fine, labels = torch.zeros(2, 3), torch.tensor([0, 0])
    strange = torch.tensor([[1.0, 2.0, 3.0], row])
    for pair in ((strange, fine), (fine, strange)):
        with pytest.raises(
            ValueError, match=r"student_logits, teacher_logits: expected .*, got nan, inf or .* at row 1"
        ):
            is_blocked(*pair, labels)
    with pytest.raises(ValueError, match=r"at position \(0, 1\)"):
        is_blocked(strange.unsqueeze(0), fine.unsqueeze(0), labels.unsqueeze(0))


@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_strict_blocking_region(num_classes):
    """Appendix A.2: strictly blocked above the border, not blocked below it, with relations left to learn."""
    student, teacher, labels = make_pairs("random", 300, num_classes, seed=7)
    border = strict_blocking_log_odds(student, teacher, labels)
    for offset, expected in ((1e-6, True), (3.0, True), (-1e-6, False), (-3.0, False)):
        lead = (border - split(student, labels).log_odds + offset).unsqueeze(-1)
        moved = student.scatter_add(-1, labels.unsqueeze(-1), lead)
        assert torch.equal(is_blocked(moved, teacher, labels), torch.full((300,), expected))


def test_safe_full_imitation_vanishes_where_blocked():
    """Appendix A.5: at a blocked state p - t lies in the polar cone."""
    student, teacher, labels = make_pairs("blocked", 300, 10, seed=8)
    assert in_polar_cone(imitation_direction(student, teacher, labels), labels).all()


def test_gap_refuses_a_candidate_of_another_shape():
    with pytest.raises(ValueError, match=r"candidate_logits: expected the shape of student_logits \(2, 3\)"):
        blocking_gap(torch.zeros(2, 4), torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(2, dtype=torch.long))


def test_gap_terms_are_what_they_say():
    student, teacher, labels = make_pairs("random", 50, 5, seed=9)
    candidate = student.flip(0)
    gap = blocking_gap(candidate, student, teacher, labels)
    torch.testing.assert_close(
        gap.change, imitation_loss(candidate, teacher, labels) - imitation_loss(student, teacher, labels)
    )
    torch.testing.assert_close(gap.distance, kl_divergence(student.log_softmax(-1), candidate.log_softmax(-1)))
    for i, y in enumerate(labels.tolist()):
        p, t = student[i].softmax(-1), teacher[i].softmax(-1)
        gain = margins(candidate[i], labels[i]) - margins(student[i], labels[i])
        others = [j for j in range(5) if j != y]
        total = sum((t[j] - p[j]) * gain[k] for k, j in enumerate(others))
        torch.testing.assert_close(gap.margin_term[i], total)
