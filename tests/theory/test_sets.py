"""EXTENSIONS 1: sets of correct classes, as mixup gives them: theorems with their tight cases, and what is refused."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import oracles
from strategies import all_kinds, direction_pair, make_pairs, make_sets, one_hot, soft_labels
from theory.checks import inner, rounding
from tpkd.geometry import (
    alignment_bound,
    conditional_loss,
    directions,
    drop_target,
    general_step_limit,
    imitation_loss,
    in_safe_cone,
    in_safe_set,
    kl_divergence,
    label_loss,
    retention_bound,
    split,
)
from tpkd.theory import (
    alignment_expansion,
    batch_alignment,
    blocking_gap,
    ce_interaction,
    ce_only_imitation_loss,
    ce_only_optimum,
    compensation_bounds,
    descent_certificate,
    diagnose,
    extra_label_gain,
    extra_margin,
    fixed_length_optimum,
    frontier,
    frontier_ends,
    frontier_log_form,
    general_descent_certificate,
    is_blocked,
    is_budget_feasible,
    joint_alignment,
    joint_potential,
    local_clipped_gradient,
    local_clipped_loss,
    log_separation_family,
    log_transfer_path,
    min_confidence,
    min_log_odds,
    observe,
    output_iteration,
    own_descent,
    own_step_limit,
    potential_gradient,
    quadratic_optimum,
    relation_ball_slack,
    removed_signal,
    retention,
    squared_residuals,
    strict_blocking_log_odds,
    transfer_cost,
    transfer_endpoint,
)

SIZES = [(4, 2), (10, 2), (10, 3), (50, 5)]
of_every_size = pytest.mark.parametrize(("num_classes", "m"), SIZES)
POSITIONS = torch.tensor([[0.0], [0.3], [1.0]], dtype=torch.float64)

WITHOUT_WEIGHTS = {
    "is_blocked": is_blocked,
    "is_blocked, turned round": lambda z, zt, y: is_blocked(zt, z, y),
    "blocking_gap": lambda z, zt, y: blocking_gap(z.flip(0), z, zt, y),
    "strict_blocking_log_odds": strict_blocking_log_odds,
    "transfer_cost": transfer_cost,
    "min_confidence": min_confidence,
    "min_log_odds": min_log_odds,
    "transfer_endpoint": transfer_endpoint,
    "log_transfer_path": lambda z, zt, y: log_transfer_path(z, zt, y, POSITIONS.to(z)),
    "frontier": lambda z, zt, y: frontier(z, zt, y, torch.tensor([[0.0], [1e-3], [0.3], [2.0], [torch.inf]])),
    "frontier_ends": frontier_ends,
    "retention": retention,
    "relation_ball_slack": relation_ball_slack,
    "removed_signal": removed_signal,
    "compensation_bounds": compensation_bounds,
    "extra_margin": lambda z, zt, y: extra_margin(z, zt, y, 0.3, beta=0.7, temperature=2.0),
    "quadratic_optimum": quadratic_optimum,
    "fixed_length_optimum": lambda z, zt, y: fixed_length_optimum(z, zt, y, 1.0),
}
WITH_WEIGHTS = {
    "extra_label_gain": lambda z, zt, y: extra_label_gain(z, zt, y, 0.3, beta=0.7),
    "joint_potential": joint_potential,
    "potential_gradient": potential_gradient,
    "joint_alignment": joint_alignment,
    "joint_alignment, beta 1": lambda z, zt, y: joint_alignment(z, zt, y, beta=1.0),
    "batch_alignment": batch_alignment,
    "batch_alignment, beta 1": lambda z, zt, y: batch_alignment(z, zt, y, beta=1.0),
    "ce_interaction": ce_interaction,
    "own_descent": own_descent,
    "own_step_limit": own_step_limit,
    "output_iteration": lambda z, zt, y: output_iteration(z, zt, y, step_size=0.5, num_steps=2),
    "general_descent_certificate": lambda z, zt, y: general_descent_certificate(
        z, zt, y, 0.02, label_weight=2.0, beta=1.0
    ),
    "squared_residuals": squared_residuals,
    "diagnose": lambda z, zt, y: diagnose(z, zt, y, beta=0.7, temperature=3.0),
    "observe": lambda z, zt, y: tuple(observe(z, zt, y).values()),
}
ONE_CLASS = {
    "ce_only_optimum": ce_only_optimum,
    "ce_only_imitation_loss": ce_only_imitation_loss,
    "log_separation_family": lambda z, zt, y: log_separation_family(zt, y, 0.1),
    "alignment_expansion": alignment_expansion,
    "descent_certificate": lambda z, zt, y: descent_certificate(z, zt, y, 0.8),
    "local_clipped_loss": lambda z, zt, y: local_clipped_loss(z.flip(0), z, zt, y),
    "local_clipped_gradient": lambda z, zt, y: local_clipped_gradient(z.flip(0), z, zt, y),
}
STATEMENTS = WITHOUT_WEIGHTS | WITH_WEIGHTS | ONE_CLASS


def fields(result):
    if isinstance(result, torch.Tensor):
        return {"value": result}
    if isinstance(result, tuple):
        return dict(enumerate(result))
    values = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


def same_bits(a, b):
    return a.dtype == b.dtype and torch.equal(a.nan_to_num(nan=-7.5), b.nan_to_num(nan=-7.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_classes", [3, 10])
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_set_of_one_class_has_the_bits_of_its_label(name, num_classes, dtype):
    student, teacher, labels = all_kinds(100, num_classes, seed=3, dtype=dtype)
    forms = [one_hot(labels, num_classes, dtype)]
    if name not in WITH_WEIGHTS:
        forms.append(forms[0] > 0)
    expected = fields(STATEMENTS[name](student, teacher, labels))
    assert expected
    for form in forms:
        found = fields(STATEMENTS[name](student, teacher, form))
        for field, value in expected.items():
            given = found[field]
            if given.shape != value.shape:
                given = drop_target(given, labels.expand(given.shape[:-1]))
            assert same_bits(given, value), field


@pytest.mark.parametrize("name", ONE_CLASS)
def test_what_is_stated_for_one_class_refuses_sets_by_name(name):
    student, teacher, labels = make_sets("random", 5, 8, 2, seed=0)
    with pytest.raises(ValueError, match=r"labels: .* is stated for one correct class, got 2 correct classes at row 0"):
        ONE_CLASS[name](student, teacher, labels)


@pytest.mark.parametrize("name", WITH_WEIGHTS)
def test_what_has_a_label_loss_refuses_bare_sets(name):
    student, teacher, labels = make_sets("random", 5, 8, 2, seed=0)
    with pytest.raises(ValueError, match="labels: expected "):
        WITH_WEIGHTS[name](student, teacher, labels > 0)


@pytest.mark.parametrize("name", WITHOUT_WEIGHTS)
def test_weights_inside_a_set_do_not_count_where_there_is_no_label_loss(name):
    student, teacher, labels = make_sets("random", 30, 8, 3, seed=1)
    expected = fields(WITHOUT_WEIGHTS[name](student, teacher, labels))
    for field, value in fields(WITHOUT_WEIGHTS[name](student, teacher, labels > 0)).items():
        assert same_bits(value, expected[field]), field


# Order


def all_margins(logits, labels):
    """M_yj of every pair, +inf for the rest: (N, K, K)."""
    pairs = (labels > 0).unsqueeze(-1) & (labels == 0).unsqueeze(-2)
    return (logits.unsqueeze(-1) - logits.unsqueeze(-2)).masked_fill(~pairs, torch.inf)


@of_every_size
@pytest.mark.parametrize("temperature", [1.0, 4.0])
@pytest.mark.parametrize("step_size", [0.01, 0.5, 3.0, 100.0])
def test_no_margin_and_no_soft_loss_is_worse_than_after_the_label_step(num_classes, m, temperature, step_size):
    """For every pair, and for the cross-entropy of every soft label on the same set."""
    student, teacher, labels = make_sets("random", 150, num_classes, m, seed=2)
    step = directions(student, teacher, labels, beta=1.3, temperature=temperature)
    after, after_label = student - step_size * step.update, student - step_size * step.label
    slack = 1e-12 * (1 + step_size) * (1 + student.abs().amax())
    assert (all_margins(after, labels) >= all_margins(after_label, labels) - slack).all()
    generator = torch.Generator().manual_seed(5)
    for _ in range(5):
        other = torch.rand(labels.shape, generator=generator, dtype=torch.float64).masked_fill(labels == 0, 0.0)
        other = other / other.sum(-1, keepdim=True)
        assert (label_loss(after, other) <= label_loss(after_label, other) + slack).all()
    if step_size < 1:  # much further on, both losses have long passed their least value
        gained = label_loss(after_label, labels) - label_loss(after, labels)
        assert gained.max() > 1e-3 * step_size


def normal_sets(count, seed):
    """Ten classes, two of them correct, logits of standard deviation 2."""
    generator = torch.Generator().manual_seed(seed)
    student, teacher = 2 * torch.randn(2, count, 10, generator=generator, dtype=torch.float64)
    return student, teacher, soft_labels(torch.randint(10, (count,), generator=generator), 10, 2, seed)


def test_the_step_of_a_soft_label_may_itself_lower_a_margin():
    """So the promise is "no worse than the label step", never "no margin falls"."""
    student, teacher, labels = normal_sets(2000, seed=3)
    step = directions(student, teacher, labels)
    outside = ~in_safe_cone(step.label, labels)
    assert 0.1 < outside.double().mean() < 0.6
    assert (~in_safe_set(student - 0.1 * step.update, student, labels))[outside].any()


def test_a_weighted_sum_of_two_label_steps_loses_margins_of_the_mixup_step():
    student, teacher, soft = normal_sets(2000, seed=4)
    first, second = soft.topk(2).indices.unbind(-1)
    share = soft.gather(-1, first.unsqueeze(-1))
    summed = share * directions(student, teacher, first).update
    summed = summed + (1 - share) * directions(student, teacher, second).update
    h = directions(student, teacher, soft).label
    torch.testing.assert_close(
        share * directions(student, teacher, first).label + (1 - share) * directions(student, teacher, second).label, h
    )
    loses = ~in_safe_cone(summed - h, soft, tolerance=1e-12)
    assert loses.double().mean() > 0.9
    assert in_safe_cone(directions(student, teacher, soft).update - h, soft, tolerance=1e-12).all()


# Retention


@of_every_size
@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_theorem_3_for_sets(num_classes, m, temperature):
    student, teacher, labels = make_sets("random", 400, num_classes, m, seed=5)
    gamma, c = retention_bound(num_classes, m), alignment_bound(num_classes, m)
    kept = retention(student, teacher, labels, temperature=temperature)
    step = directions(student, teacher, labels, temperature=temperature)
    clear = step.conditional.abs().amax(-1) > 1e-9
    assert (kept.descent_share >= gamma - 1e-9)[clear].all()
    torch.testing.assert_close(kept.norm_share, kept.descent_share, rtol=1e-6, atol=1e-6)
    assert (kept.pure_share >= gamma - 1e-9)[clear].all()
    assert (kept.cosine >= c - 1e-9)[clear].all()
    assert (relation_ball_slack(student, teacher, labels, temperature=temperature) >= -1e-9)[clear].all()


@pytest.mark.parametrize(("num_classes", "m"), [(4, 2), (10, 1), (10, 3), (100, 2), (100, 5)])
def test_retention_is_tight_for_sets(num_classes, m):
    """One negative coordinate, the rest equal: both shares are gamma_{K,m}, and w_cond = gamma_{K,m} u."""
    n = num_classes - m
    difference = torch.full((n,), 1e-4 / n / (n - 1), dtype=torch.float64)
    difference[0] = -1e-4 / n
    pair = direction_pair(difference, m)
    kept, gamma = retention(*pair), retention_bound(num_classes, m)
    assert kept.descent_share.item() == pytest.approx(gamma, rel=1e-6)
    assert kept.pure_share.item() == pytest.approx(gamma, rel=1e-6)
    step = directions(*pair)
    torch.testing.assert_close(step.pure_conditional, gamma * step.conditional, rtol=1e-6, atol=1e-12)
    bounds = compensation_bounds(*pair)
    assert bounds.compensation.item() == pytest.approx(bounds.upper.item(), rel=1e-6)
    removed = removed_signal(*pair)
    assert removed.lower.item() == pytest.approx(removed.upper.item(), rel=1e-6)


@pytest.mark.parametrize(("num_classes", "m"), [(10, 1), (10, 2), (100, 3), (100, 5)])
def test_alignment_is_tight_for_sets(num_classes, m):
    """One class clipped and ||d||^2 = 2 gamma / (1 + gamma) ||u||^2: cos(u, w_cond) = 2 sqrt(gamma) / (1 + gamma)."""
    gamma, n = retention_bound(num_classes, m), num_classes - m
    target = 2 * gamma / (1 + gamma)
    # With u = (-1, positives of sum 1 and squares P): (1 / (m + 1) + P) = target (1 + P).
    P = (target - 1 / (m + 1)) / (1 - target)
    # One positive coordinate a, the others (1 - a) / (n - 2) each: a^2 + (1 - a)^2 / (n - 2) = P.
    a = (1 + math.sqrt((n - 2) * ((n - 1) * P - 1))) / (n - 1)
    difference = torch.full((n,), (1 - a) / (n - 2), dtype=torch.float64)
    difference[0], difference[1] = -1.0, a
    kept = retention(*direction_pair(1e-4 / n * difference, m))
    assert kept.descent_share.item() == pytest.approx(target, rel=1e-5)
    assert kept.cosine.item() == pytest.approx(alignment_bound(num_classes, m), rel=1e-6)


@of_every_size
def test_compensation_bounds_and_the_removed_signal_of_sets(num_classes, m):
    """TV / (K - 1) <= l <= TV / (m + 1), and m l^2 (1 + m / a) <= removed <= m (m + 1) l^2."""
    student, teacher, labels = make_sets("random", 300, num_classes, m, seed=6)
    bounds, removed = compensation_bounds(student, teacher, labels), removed_signal(student, teacher, labels)
    assert (bounds.lower <= bounds.compensation + 1e-15).all()
    assert (bounds.compensation <= bounds.upper + 1e-15).all()
    torch.testing.assert_close(removed.removed, removed.clipped, rtol=1e-9, atol=1e-14)
    assert (removed.lower <= removed.clipped * (1 + 1e-12) + 1e-16).all()
    assert (removed.clipped <= removed.upper * (1 + 1e-12) + 1e-16).all()
    n = num_classes - m
    difference = torch.full((n,), -1e-4 / n / (n - 1), dtype=torch.float64)
    difference[0] = 1e-4 / n
    least = compensation_bounds(*direction_pair(difference, m))
    assert least.compensation.item() == pytest.approx(least.lower.item(), rel=1e-6)


@of_every_size
def test_extra_margins_and_label_gains_of_sets(num_classes, m):
    student, teacher, labels = make_sets("random", 200, num_classes, m, seed=7)
    step = directions(student, teacher, labels, beta=0.8)
    after, after_label = student - 0.7 * step.update, student - 0.7 * step.label
    extra = extra_margin(student, teacher, labels, 0.7, beta=0.8)
    incorrect = labels == 0
    taken = all_margins(after, labels) - all_margins(after_label, labels)
    expected = extra.gain.unsqueeze(-2).expand(taken.shape)[taken.isfinite()]
    torch.testing.assert_close(expected, taken[taken.isfinite()], rtol=0, atol=1e-10)
    assert (extra.gain == torch.inf)[~incorrect].all()
    assert (extra.gain <= extra.bound.unsqueeze(-1) * (1 + 1e-12))[incorrect].all()
    gain = extra_label_gain(student, teacher, labels, 0.7, beta=0.8)
    torch.testing.assert_close(
        gain.gain, label_loss(after_label, labels) - label_loss(after, labels), atol=1e-10, rtol=0
    )
    chain = [torch.zeros_like(gain.gain), gain.gain, gain.first_order, gain.bound]
    for low, high in itertools.pairwise(chain):
        assert (low <= high * (1 + 1e-9) + 1e-10).all()
    assert (gain.initial_bound == torch.inf).all()


def test_a_soft_label_step_may_lower_the_confidence_in_its_set():
    """Which is why nothing is claimed from the confidence before the step."""
    student = torch.tensor([[0.97, 0.01, 0.01, 0.01]], dtype=torch.float64).log()
    labels = torch.tensor([[0.5, 0.5, 0.0, 0.0]], dtype=torch.float64)
    after = student - directions(student, student, labels).label
    assert split(after, labels).log_confidence < split(student, labels).log_confidence


def test_the_largest_extra_margin_is_attained():
    """All that is asked for goes to one class and all of it comes from one: (m + 2) / (m + 1) eta beta TV."""
    for m in (1, 2, 4):
        difference = torch.zeros(8, dtype=torch.float64)
        difference[0], difference[1] = -1e-4, 1e-4
        pair = direction_pair(difference, m)
        extra = extra_margin(*pair, 1.0)
        gain = extra.gain[pair.labels == 0].max().item()
        assert gain == pytest.approx(extra.bound.item(), rel=1e-9)


# Blocking


def improving_direction(student, teacher, mask):
    """The largest (p - t)'x over the safe directions with |x_k| <= 1: a linear program."""
    p, t = (np.exp(oracles.log_softmax(x)) for x in (student, teacher))
    size = len(p)
    Y, rest = oracles.correct_classes(mask, size), oracles.incorrect_classes(mask, size)
    rows = []
    for y, j in itertools.product(Y, rest):
        row = np.zeros(size)
        row[y], row[j] = 1.0, -1.0
        rows.append(row)
    return -linprog(-(p - t), A_ub=np.array(rows), b_ub=np.zeros(len(rows)), bounds=(-1, 1)).fun


def blocked_sets(count, num_classes, m, seed):
    """Half of the students are moved towards the set until they are blocked, where the shares inside allow it."""
    student, teacher, labels = make_sets("random", count, num_classes, m, seed)
    student = student.clamp(-3, 3)
    log_t = teacher.clamp(-3, 3).log_softmax(-1)
    inside = torch.where(labels > 0, log_t, -torch.inf).log_softmax(-1)
    half = torch.arange(count).unsqueeze(-1) % 2 == 0
    raised = torch.where(labels > 0, inside + 12.0, student)
    return torch.where(half, raised, student), teacher.clamp(-3, 3), labels


@pytest.mark.parametrize(("num_classes", "m"), [(5, 2), (8, 1), (8, 3)])
def test_blocking_of_sets_against_a_linear_program(num_classes, m):
    """thm:block: blocked exactly when no safe direction improves imitation."""
    student, teacher, labels = blocked_sets(60, num_classes, m, seed=8)
    blocked = is_blocked(student, teacher, labels)
    assert 0.2 < blocked.double().mean() < 0.9
    for i in range(60):
        best = improving_direction(student[i].numpy(), teacher[i].numpy(), labels[i].numpy())
        assert (best > 1e-9) == (not blocked[i]), i


def test_each_half_of_the_test_is_needed():
    """p_j <= t_j outside is not enough, nor is p_y >= t_y inside."""
    teacher = torch.tensor([[0.4, 0.2, 0.2, 0.2]], dtype=torch.float64).log()
    mask = torch.tensor([[True, True, False, False]])
    only_outside = torch.tensor([[0.75, 0.05, 0.1, 0.1]], dtype=torch.float64).log()
    only_inside = torch.tensor([[0.45, 0.2, 0.3, 0.05]], dtype=torch.float64).log()
    both = torch.tensor([[0.55, 0.25, 0.1, 0.1]], dtype=torch.float64).log()
    assert [is_blocked(x, teacher, mask).item() for x in (only_outside, only_inside, both)] == [False, False, True]
    for state in (only_outside, only_inside):
        assert improving_direction(state[0].numpy(), teacher[0].numpy(), mask[0].numpy()) > 1e-3


@of_every_size
def test_the_blocking_gap_of_sets_is_an_identity(num_classes, m):
    """eq:block with the set: change = KL(p || p') + sum, nonnegative where blocked and every margin is kept."""
    student, teacher, labels = blocked_sets(200, num_classes, m, seed=9)
    candidate = student + 0.3 * torch.randn(student.shape, generator=torch.Generator().manual_seed(1)).double()
    gap = blocking_gap(candidate, student, teacher, labels)
    torch.testing.assert_close(gap.change, gap.distance + gap.margin_term, rtol=0, atol=1e-10)
    torch.testing.assert_close(
        gap.change, imitation_loss(candidate, teacher, labels) - imitation_loss(student, teacher, labels)
    )
    torch.testing.assert_close(gap.distance, kl_divergence(student.log_softmax(-1), candidate.log_softmax(-1)))
    safe = candidate - student
    safe = torch.where(labels > 0, safe.abs(), -safe.abs())
    kept = blocking_gap(student + safe, student, teacher, labels)
    blocked = is_blocked(student, teacher, labels)
    assert blocked.any()
    assert (kept.margin_term >= -1e-12)[blocked].all()
    assert (kept.change >= kept.distance - 1e-12)[blocked].all()


@of_every_size
def test_the_border_of_blocking_for_sets(num_classes, m):
    student, teacher, labels = blocked_sets(200, num_classes, m, seed=10)
    border = strict_blocking_log_odds(student, teacher, labels)
    parts, mask = split(student, labels), labels > 0
    finite = border.isfinite()
    assert 0 < finite.sum() < 200
    border = border.masked_fill(~finite, 0.0)
    for offset, expected in ((-1e-6, False), (1e-6, True)):
        raised = torch.where(mask, student + (border + offset - parts.log_odds).unsqueeze(-1), student)
        assert (is_blocked(raised, teacher, labels) == expected)[finite].all()
    certain = torch.where(mask, student + 200.0, student)
    assert not is_blocked(certain, teacher, labels)[~finite].any()


# Price and frontier


@of_every_size
def test_the_price_of_sets_is_the_least_rise_that_keeps_every_margin(num_classes, m):
    """thm:cost: the endpoint keeps every margin, and none with less confidence in the set does, whatever is inside."""
    student, teacher, labels = make_sets("random", 150, num_classes, m, seed=11)
    student, teacher = student.clamp(-8, 8), teacher.clamp(-8, 8)
    end = transfer_endpoint(student, teacher, labels)
    parts, goal = split(student, labels), split(end, labels)
    torch.testing.assert_close(end.exp().sum(-1), torch.ones(150, dtype=torch.float64))
    torch.testing.assert_close(goal.log_conditional, split(teacher, labels).log_conditional, rtol=0, atol=1e-9)
    torch.testing.assert_close(
        goal.log_odds, parts.log_odds + transfer_cost(student, teacher, labels), rtol=0, atol=1e-9
    )
    torch.testing.assert_close(goal.log_odds, min_log_odds(student, teacher, labels), rtol=0, atol=1e-9)
    torch.testing.assert_close(goal.log_confidence.exp(), min_confidence(student, teacher, labels))
    assert in_safe_set(end, student.log_softmax(-1), labels, tolerance=1e-9).all()
    generator = torch.Generator().manual_seed(2)
    mask = labels > 0
    for _ in range(10):  # less confidence, and other proportions inside
        moved = torch.rand(student.shape, generator=generator, dtype=torch.float64) - 0.5
        less = torch.where(mask, end + moved, end)
        shift = split(less, labels).log_odds - goal.log_odds + 1e-3
        less = torch.where(mask, less - shift.unsqueeze(-1), less)
        assert not in_safe_set(less, student.log_softmax(-1), labels).any()


@of_every_size
def test_the_path_of_sets_keeps_every_margin_all_along(num_classes, m):
    """eq:path."""
    student, teacher, labels = make_sets("random", 50, num_classes, m, seed=12)
    path = log_transfer_path(student, teacher, labels, POSITIONS)
    torch.testing.assert_close(path[0], student.log_softmax(-1), rtol=0, atol=1e-9)
    torch.testing.assert_close(path[-1], transfer_endpoint(student, teacher, labels), rtol=0, atol=1e-9)
    for point in path:
        torch.testing.assert_close(point.exp().sum(-1), torch.ones(50, dtype=torch.float64))
        size = 1 + student.abs().amax()
        assert in_safe_set(point, student.log_softmax(-1), labels, tolerance=1e-12 * size.item()).all()


@pytest.mark.parametrize(("num_classes", "m"), [(10, 2), (30, 4)])
def test_the_frontier_of_a_set_is_that_of_the_classes_outside(num_classes, m):
    """eq:budget-optimum: the same problem as with the set merged into one class."""
    student, teacher, labels = make_sets("random", 60, num_classes, m, seed=13)
    budgets = torch.tensor([[0.0], [0.05], [0.5], [3.0]], dtype=torch.float64)
    found = frontier(student, teacher, labels, budgets)
    assert found.log_conditional.shape == (4, 60, num_classes)
    assert (found.log_conditional == -torch.inf)[(labels > 0).expand(4, -1, -1)].all()
    assert is_budget_feasible(found.log_conditional, student, labels, budgets).all()
    ends = frontier_ends(student, teacher, labels)
    torch.testing.assert_close(found.value[0], ends.start, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(ends.completing_budget, transfer_cost(student, teacher, labels))
    growth = found.log_conditional - split(student, labels).log_conditional
    for index, budget in enumerate(budgets.flatten().tolist()):
        form = frontier_log_form(growth[index], student, teacher, labels, budget)
        torch.testing.assert_close(form.value, found.value[index], rtol=1e-8, atol=1e-9)
        assert (form.excess_mass <= 1e-9).all()
        assert (form.excess_budget <= 1e-9).all()
    for i in range(60):
        outside = torch.tensor(oracles.incorrect_classes(labels[i].numpy(), num_classes))
        merged = [torch.cat([torch.zeros(1).double(), x[i, outside]]).unsqueeze(0) for x in (student, teacher)]
        alone = frontier(*merged, torch.tensor([0]), budgets)
        torch.testing.assert_close(alone.value[:, 0], found.value[:, i], rtol=1e-9, atol=1e-12)


# Joint learning


@of_every_size
@pytest.mark.parametrize("beta", [0.5, 1.0])
def test_joint_alignment_of_sets_has_the_general_bound(num_classes, m, beta):
    student, teacher, labels = make_sets("random", 400, num_classes, m, seed=14)
    aligned = joint_alignment(student, teacher, labels, beta=beta)
    g = potential_gradient(student, teacher, labels)
    assert (aligned.inner_product >= aligned.lower_bound - rounding(inner(g, g))).all()
    assert (aligned.lower_bound > 0).double().mean() > 0.9
    batch = batch_alignment(student, teacher, labels, beta=beta)
    assert batch.inner_product >= batch.lower_bound > 0
    own = own_descent(student, teacher, labels, beta=beta)
    assert (own.rate >= own.lower_bound - rounding(inner(g, g))).all()


def test_rows_of_different_sizes_have_their_own_constants():
    student, teacher, labels = make_pairs("random", 90, 12, seed=15)
    soft = torch.cat([soft_labels(labels[i::3], 12, m, seed=m) for i, m in enumerate((1, 2, 5))])
    order = torch.cat([torch.arange(i, 90, 3) for i in range(3)])
    student, teacher = student[order], teacher[order]
    for statement in (own_descent, relation_ball_slack, joint_alignment, extra_margin, compensation_bounds):
        more = (0.3,) if statement is extra_margin else ()
        together = fields(statement(student, teacher, soft, *more))
        for start in (0, 30, 60):
            rows = slice(start, start + 30)
            for field, value in fields(statement(student[rows], teacher[rows], soft[rows], *more)).items():
                assert same_bits(together[field][rows], value), field


def test_the_bound_of_one_half_is_not_handed_out_for_sets():
    """||v||^2 + gamma_{K,m} ||g||^2 / 4 fails where gamma < 1/2: the tight case, with r on the clipped class."""
    num_classes, m = 30, 2
    n, gamma = num_classes - m, retention_bound(num_classes, m)
    r = torch.full((n,), 0.1 / (n - 1), dtype=torch.float64)
    r[0] = 0.9
    difference = torch.full((n,), 0.05 / (n - 1), dtype=torch.float64)
    difference[0] = -0.05
    labels = torch.tensor([[0.5, 0.5] + [0.0] * n], dtype=torch.float64)
    student = torch.cat([0.999 * labels[0, :2], 0.001 * r]).log().unsqueeze(0)
    teacher = torch.cat([0.5 * labels[0, :2], 0.5 * (r - difference)]).log().unsqueeze(0)
    aligned = joint_alignment(student, teacher, labels)
    g, v = potential_gradient(student, teacher, labels), directions(student, teacher, labels).update
    assert aligned.inner_product < inner(v, v) + gamma / 4 * inner(g, g) - 1e-6
    assert aligned.inner_product >= aligned.lower_bound > 0


@of_every_size
def test_certain_own_steps_of_sets_lower_the_conditional_loss(num_classes, m):
    student, teacher, labels = make_sets("random", 300, num_classes, m, seed=17)
    near = torch.where(labels > 0, labels.clamp(min=1e-30).log(), student - student.logsumexp(-1, keepdim=True) - 4)
    limit, step = own_step_limit(near, teacher, labels), directions(near, teacher, labels)
    assert 0.05 < limit.certain.double().mean() <= 1
    before = conditional_loss(near, teacher, labels)
    for share in (1e-3, 0.5, 0.99):
        after = conditional_loss(near - share * limit.step_limit.unsqueeze(-1) * step.update, teacher, labels)
        assert (after < before)[limit.certain].all()


@of_every_size
def test_the_general_certificate_holds_for_sets(num_classes, m):
    """eq:general-coefficient-descent under 4 w beta gamma_{K,m} > 1."""
    student, teacher, labels = make_sets("random", 400, num_classes, m, seed=18)
    for w, beta in ((4.0, 0.5), (4.0, 1.0), (2.0, 1.0)):
        limit = general_step_limit(w, beta, num_classes, m)
        found = general_descent_certificate(student, teacher, labels, limit, label_weight=w, beta=beta)
        scale = 1 + joint_potential(student, teacher, labels, label_weight=w)
        assert (found.decrease >= found.certain - 1e-12 * scale).all()
        assert (found.certain > 0).all()
    with pytest.raises(ValueError, match="step_size: expected a positive step up to"):
        general_descent_certificate(student, teacher, labels, 1.01 * limit, label_weight=w, beta=beta)


@of_every_size
def test_residuals_of_sets(num_classes, m):
    """||h||^2 <= (m + 1) ||g||^2 / 16 and ||u||^2 <= (2 m + 4) ||g||^2."""
    found = squared_residuals(*make_sets("random", 400, num_classes, m, seed=19))
    assert (found.label <= (m + 1) / 16 * found.joint * (1 + 1e-9) + 1e-18).all()
    assert (found.conditional <= (2 * m + 4) * found.joint * (1 + 1e-9) + 1e-18).all()


def test_the_iteration_takes_the_student_to_the_soft_label_and_to_the_relations():
    """p -> s and r -> q, with the potential falling at every step to w H(s)."""
    generator = torch.Generator().manual_seed(4)
    student, teacher = 0.7 * torch.randn(2, 5, 6, generator=generator, dtype=torch.float64)
    labels = soft_labels(torch.randint(6, (5,), generator=generator), 6, 2, seed=4)
    path = output_iteration(student, teacher, labels, step_size=0.3, num_steps=4000, temperature=2.0)
    assert (path[-1].softmax(-1) - labels).abs().max() < 1e-2
    r, q = (split(x, labels).log_conditional.exp() for x in (path[-1], teacher))
    assert (r - q).abs().nan_to_num().max() < 2e-2
    potentials = torch.stack([joint_potential(z, teacher, labels, temperature=2.0) for z in path[::50]])
    assert (potentials.diff(dim=0) < 0).all()
    entropy = torch.special.entr(labels).sum(-1)
    assert (potentials[-1] - 4 * entropy).min() > 0
    assert (potentials[-1] - 4 * entropy).max() < 1e-2


def test_the_smoothness_guarantee_holds_for_sets():
    """eq:quadratic-optima: the conditional loss outside a set is 1/2-smooth too."""
    student, teacher, labels = make_sets("random", 200, 12, 3, seed=20)
    best = quadratic_optimum(student, teacher, labels)
    before, after = (conditional_loss(z, teacher, labels) for z in (student, student - best.displacement))
    assert (before - after >= best.progress - 1e-10 * (1 + before)).all()
    step, fixed = directions(student, teacher, labels), fixed_length_optimum(student, teacher, labels, 2.0)
    assert in_safe_cone(fixed.displacement, labels).all()
    torch.testing.assert_close(fixed.progress, inner(fixed.displacement, step.conditional), rtol=1e-9, atol=1e-12)


# Diagnosis


def by_loops(student, teacher, s, temperature):
    """Every field of one example in plain NumPy."""
    size = len(student)
    Y, rest = oracles.correct_classes(s, size), oracles.incorrect_classes(s, size)
    p, t = (np.exp(oracles.log_softmax(x)) for x in (student, teacher))
    r, q = oracles.softened(student, rest), oracles.softened(teacher, rest)
    step = oracles.set_directions(student, teacher, s, 0.7, temperature)
    u, d, v = step["conditional"], step["safe"], step["update"]
    g = 4 * step["label"] + u
    cost = np.log(q / r).max()
    odds = p[Y].sum() / p[rest].sum() * math.exp(cost)
    return {
        "blocked": float(all(p[j] <= t[j] for j in rest) and all(p[y] >= t[y] for y in Y)),
        "confidence": p[Y].sum(),
        "teacher_confidence": t[Y].sum(),
        "label_loss": oracles.soft_label_loss(student, s),
        "imitation_loss": float((t * np.log(t / p)).sum()),
        "conditional_loss": float((q * np.log(q / r)).sum()),
        "transfer_cost": cost,
        "min_confidence": odds / (1 + odds),
        "compensation": step["compensation"],
        "retention": (u @ d) / (u @ u),
        "update_cosine": (g @ v) / math.sqrt((g @ g) * (v @ v)),
    }


@of_every_size
@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_a_diagnosis_of_soft_labels_agrees_with_loops(num_classes, m, temperature):
    student, teacher, labels = blocked_sets(60, num_classes, m, seed=21)
    state = diagnose(student, teacher, labels, beta=0.7, temperature=temperature)
    assert state.bounds == dict.fromkeys(state.names(), "exact")
    for i in range(60):
        truth = by_loops(student[i].numpy(), teacher[i].numpy(), labels[i].numpy(), temperature)
        for field, expected in truth.items():
            assert getattr(state, field)[i].item() == pytest.approx(expected, rel=1e-8, abs=1e-10), (field, i)


def test_monitoring_of_soft_labels_leaves_out_rows_of_zeros():
    student, teacher, labels = make_sets("random", 40, 8, 2, seed=22)
    masked, broken = labels.clone(), student.clone()
    masked[::2], broken[::2] = 0.0, torch.nan
    seen = observe(broken, teacher, masked)
    means = diagnose(student[1::2], teacher[1::2], labels[1::2]).summary()
    assert seen["blocked_share"].item() == pytest.approx(means["blocked_share"])
    for name in ("conditional_loss", "retention", "label_loss", "transfer_cost", "confidence"):
        assert seen[name].item() == pytest.approx(means["all"][name], rel=1e-5)
    nothing = observe(student, teacher, torch.zeros_like(labels))
    assert nothing.keys() == seen.keys()
    assert not any(nothing.values())
