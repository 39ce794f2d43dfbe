import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, minimize

import oracles
from strategies import all_kinds, make_pairs
from tpkd.geometry import conditional_loss, in_safe_set, join, kl_divergence, split
from tpkd.theory import frontier, frontier_ends, frontier_log_form, is_budget_feasible, transfer_cost
from tpkd.theory.frontier import frontier_at, frontier_values, order_by_gap
from tpkd.theory.pair import split_pair


def moderate(count, num_classes, seed):
    student, teacher, labels = make_pairs("tiny", count, num_classes, seed)
    return 1500 * student, 1500 * teacher, labels


def solve_log_form(log_r, log_q, budget):
    """min_Y KL(q || r) - q'Y with sum_j r_j e^Y_j <= 1 and Y_j <= B, by SLSQP."""
    r, q = np.exp(log_r), np.exp(log_q)
    solved = minimize(
        lambda Y: -(q @ Y),
        np.minimum(0.0, budget) * np.ones(len(r)),
        jac=lambda Y: -q,
        bounds=[(None, budget)] * len(r),
        constraints=[{"type": "ineq", "fun": lambda Y: 1 - r @ np.exp(Y), "jac": lambda Y: -r * np.exp(Y)}],
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return float(q @ (log_q - log_r) - q @ solved.x), solved.x


def by_root_finding(log_r, log_q, budget):
    """V(B) from the multiplier found by Brent's method on sum_j min(e^B r_j, q_j / lambda) = 1."""
    r, q = np.exp(log_r), np.exp(log_q)
    mass = lambda log_l: np.minimum(np.exp(budget) * r, q * np.exp(-log_l)).sum() - 1  # noqa: E731
    log_l = brentq(mass, (log_q - log_r).min() - budget - 1e-9, 1e-9, xtol=1e-15, rtol=1e-15)
    x = np.minimum(np.exp(budget) * r, q * np.exp(-log_l))
    return float((q * (log_q - np.log(x))).sum())


@pytest.mark.parametrize("num_classes", [3, 10, 30])
def test_frontier_agrees_with_slsqp_on_the_log_form(num_classes):
    """eq:budget-optimum against a solver of eq:budget-log-form."""
    student, teacher, labels = moderate(12, num_classes, seed=0)
    cost = transfer_cost(student, teacher, labels)
    for share in (0.1, 0.5, 0.9):
        point = frontier(student, teacher, labels, share * cost)
        for i, y in enumerate(labels.tolist()):
            log_r, log_q = (oracles.conditional(z[i].numpy(), y) for z in (student, teacher))
            value, growth = solve_log_form(log_r, log_q, share * cost[i].item())
            assert point.value[i].item() == pytest.approx(value, abs=2e-8)
            np.testing.assert_allclose(point.log_conditional[i].numpy() - log_r, growth, atol=2e-3)


@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_frontier_agrees_with_root_finding(num_classes):
    """eq:budget-optimum against Brent's method on the normalisation."""
    student, teacher, labels = moderate(40, num_classes, seed=1)
    cost = transfer_cost(student, teacher, labels)
    for share in (1e-6, 0.01, 0.3, 0.7, 0.99):
        value = frontier(student, teacher, labels, share * cost).value
        for i, y in enumerate(labels.tolist()):
            log_r, log_q = (oracles.conditional(z[i].numpy(), y) for z in (student, teacher))
            expected = by_root_finding(log_r, log_q, share * cost[i].item())
            assert value[i].item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_frontier_satisfies_the_kkt_conditions_everywhere(num_classes):
    """eq:budget-optimum by its optimality conditions, on every kind: one multiplier below the caps, more at them."""
    student, teacher, labels = all_kinds(200, num_classes, seed=2)
    log_r, log_q = split(student, labels).log_conditional, split(teacher, labels).log_conditional
    cost = transfer_cost(student, teacher, labels)
    for share in (1e-3, 0.2, 0.6, 0.95):
        B = share * cost
        log_x = frontier(student, teacher, labels, B).log_conditional
        assert not log_x.isnan().any()
        torch.testing.assert_close(log_x.logsumexp(-1), torch.zeros_like(B), rtol=0, atol=1e-11)
        gap = B.unsqueeze(-1) - (log_x - log_r)
        rounding = 1e-12 * (1 + log_r.abs() + log_q.abs())
        assert (gap >= -rounding).all()
        below = gap > rounding
        multiplier = torch.where(below, log_q - log_x, torch.nan)
        highest, lowest = multiplier.nan_to_num(-torch.inf).amax(-1), multiplier.nan_to_num(torch.inf).amin(-1)
        free = below.any(-1)
        assert ((highest - lowest)[free] <= rounding.amax(-1)[free]).all()
        at_cap = torch.where(below, torch.inf, log_q - log_x).amin(-1)
        assert (at_cap >= highest - rounding.amax(-1))[free].all()


@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_frontier_ends(num_classes):
    """eq:budget-endpoints: V(0) = KL(q || r); V(B) = 0 exactly when B >= D_inf."""
    student, teacher, labels = all_kinds(200, num_classes, seed=3)
    ends = frontier_ends(student, teacher, labels)
    torch.testing.assert_close(ends.start, conditional_loss(student, teacher, labels))
    start = frontier(student, teacher, labels, 0.0)
    torch.testing.assert_close(start.value, ends.start, rtol=1e-12, atol=1e-13)
    # As probabilities: where the cost itself rounds to zero, r and q differ by less than the smallest number.
    r, q = split(student, labels).log_conditional.exp(), split(teacher, labels).log_conditional.exp()
    torch.testing.assert_close(start.log_conditional.exp(), r, rtol=1e-12, atol=1e-15)
    for beyond in (ends.completing_budget, ends.completing_budget + 1e-9, 1e6, math.inf):
        done = frontier(student, teacher, labels, beyond)
        assert (done.value == 0).all()
        torch.testing.assert_close(done.log_conditional.exp(), q, rtol=1e-12, atol=1e-15)
    left = conditional_loss(student, teacher, labels) > 1e-6
    assert left.double().mean() >= 0.2
    nearly = frontier(student, teacher, labels, 0.99 * ends.completing_budget)
    plain = left & (ends.completing_budget < 50)
    assert (nearly.value[plain] > 0).all()


@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_frontier_is_nonincreasing_and_convex(num_classes):
    """Appendix A.7, along an even grid of budgets."""
    student, teacher, labels = moderate(50, num_classes, seed=4)
    grid = torch.linspace(0, 12, 241, dtype=torch.float64).unsqueeze(-1)
    value = frontier(student, teacher, labels, grid).value
    assert value.shape == (241, 50)
    slope = value.diff(dim=0)
    assert (slope <= 1e-14).all()
    assert (slope.diff(dim=0) >= -1e-13).all()


@pytest.mark.parametrize("budget", [1e-18, 1e-15, 1e-12, 1e-9])
def test_frontier_is_stable_for_vanishing_budgets(budget):
    """As B goes to 0 no class grows by more than B, and V(B) goes to V(0) at that rate."""
    student, teacher, labels = moderate(100, 20, seed=5)
    log_r = split(student, labels).log_conditional
    point = frontier(student, teacher, labels, budget)
    assert point.log_conditional.isfinite().all()
    assert ((point.log_conditional - log_r) <= budget + 1e-14).all()
    torch.testing.assert_close(
        point.value, conditional_loss(student, teacher, labels), rtol=0, atol=20 * budget + 1e-14
    )


def test_first_order_gain_of_a_small_budget_is_exact():
    """For a small budget every class but the least wanted grows by B, and that one pays for it."""
    log_r = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()
    log_q = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64).log()
    student, teacher = join(torch.tensor(1.0), log_r, torch.tensor(0)), join(torch.tensor(0.0), log_q, torch.tensor(0))
    B = 1e-6
    gain = conditional_loss(student, teacher, torch.tensor(0)) - frontier(student, teacher, torch.tensor(0), B).value
    # Classes 2 and 3 grow by B, class 1 shrinks by B (0.5 / 0.5): the gain is B (0.3 + 0.5 - 0.2).
    assert gain.item() / B == pytest.approx(0.6, abs=1e-5)


@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_frontier_points_are_feasible_and_safe(num_classes):
    """eq:budget-feasible: every optimum lies in Q_B, and is had safely with logit(a) = logit(rho) + B."""
    student, teacher, labels = moderate(100, num_classes, seed=6)
    for B in (0.0, 0.1, 1.0, 3.0):
        point = frontier(student, teacher, labels, B)
        assert is_budget_feasible(point.log_conditional, student, labels, B).all()
        candidate = join(split(student, labels).log_odds + B, point.log_conditional, labels)
        assert in_safe_set(candidate, student, labels, tolerance=1e-12).all()


@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_feasibility_is_safety_at_the_budget(num_classes):
    """eq:budget-feasible in both directions: x is in Q_B exactly when (a, (1 - a) x) keeps every margin."""
    student, other, labels = moderate(400, num_classes, seed=7)
    log_x = split(other, labels).log_conditional
    needed = (log_x - split(student, labels).log_conditional).amax(-1)
    budget = (needed + torch.linspace(-0.5, 0.5, 400, dtype=torch.float64)).clamp(min=0)
    feasible = is_budget_feasible(log_x, student, labels, budget)
    assert 0.2 <= feasible.double().mean() <= 0.8
    candidate = join(split(student, labels).log_odds + budget, log_x, labels)
    assert torch.equal(feasible, in_safe_set(candidate, student, labels, tolerance=1e-12))
    assert not is_budget_feasible(log_x + 1e-3, student, labels, math.inf).any()


def test_log_form_at_the_optimum():
    """eq:budget-log-form: the optimum meets both constraints with the first active, and its objective is V(B)."""
    student, teacher, labels = moderate(100, 10, seed=8)
    B = 0.5 * transfer_cost(student, teacher, labels)
    point = frontier(student, teacher, labels, B)
    growth = point.log_conditional - split(student, labels).log_conditional
    form = frontier_log_form(growth, student, teacher, labels, B)
    torch.testing.assert_close(form.value, point.value, rtol=1e-10, atol=1e-13)
    assert (form.excess_mass.abs() <= 1e-12).all()
    assert (form.excess_budget.abs() <= 1e-12).all()


def test_no_feasible_distribution_beats_the_frontier():
    student, teacher, labels = moderate(50, 6, seed=9)
    log_r, log_q = split(student, labels).log_conditional, split(teacher, labels).log_conditional
    B = 0.4 * transfer_cost(student, teacher, labels)
    best = frontier(student, teacher, labels, B).value
    share = torch.rand(200, 1, 1, dtype=torch.float64) ** 4
    mixed = torch.logaddexp(share.log() + log_q, (-share).log1p() + log_r)
    other = (log_r + (mixed - log_r).minimum(B.view(-1, 1))).log_softmax(-1)
    feasible = is_budget_feasible(other, student, labels, B)
    assert feasible.double().mean() > 0.2
    loss = kl_divergence(log_q.expand(other.shape), other)
    assert (loss >= best - 1e-13)[feasible].all()


def test_grid_stands_in_front():
    student, teacher, labels = moderate(5, 4, seed=10)
    grid = torch.tensor([[0.0], [0.2], [0.7]], dtype=torch.float64)
    whole = frontier(student, teacher, labels, grid)
    assert whole.log_conditional.shape == (3, 5, 3)
    for k in range(3):
        row = frontier(student, teacher, labels, grid[k, 0].item())
        torch.testing.assert_close(whole.value[k], row.value)
        torch.testing.assert_close(whole.log_conditional[k], row.log_conditional)


@pytest.mark.parametrize("ruled_out", [(2,), (2, 4), (1, 2, 3)])
def test_classes_that_the_teacher_alone_rules_out_share_what_is_left(ruled_out):
    student, teacher, labels = make_pairs("random", 40, 6, seed=3)
    labels.zero_()
    teacher[:, list(ruled_out)] = -torch.inf
    budgets = torch.tensor([0.0, 0.05, 0.3, 0.9, 2.0, 9.0], dtype=torch.float64).unsqueeze(-1)
    point = frontier(student, teacher, labels, budgets)
    torch.testing.assert_close(point.log_conditional.logsumexp(-1), torch.zeros_like(point.value), rtol=0, atol=1e-12)
    assert is_budget_feasible(point.log_conditional, student, labels, budgets).all()
    torch.testing.assert_close(
        kl_divergence(split(teacher, labels).log_conditional, point.log_conditional), point.value
    )
    limit = frontier(student, teacher.clamp(min=-500), labels, budgets)
    torch.testing.assert_close(point.value, limit.value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("budget", [-1e-3, float("nan")])
def test_frontier_refuses_a_negative_budget(budget):
    with pytest.raises(ValueError, match="budget: expected numbers from 0 to inf"):
        frontier(torch.zeros(1, 3), torch.zeros(1, 3), torch.zeros(1, dtype=torch.long), budget)


def test_feasibility_refuses_other_classes():
    with pytest.raises(ValueError, match="log_conditional: expected 2 classes, got 3"):
        is_budget_feasible(torch.zeros(1, 3), torch.zeros(1, 3), torch.zeros(1, dtype=torch.long), 1.0)


@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_values_from_sums_are_those_of_the_best_distribution(num_classes):
    """V(B) from sums over sorted classes against KL(q || x*) of the distribution itself, at every budget."""
    student, teacher, labels = all_kinds(200, num_classes, seed=5)
    budgets = torch.tensor([0.0, 1e-9, 1e-3, 0.1, 0.5, math.log(2), 0.7, 3.0, 40.0, 1e4, torch.inf]).double()
    ordered = order_by_gap(split_pair(student, teacher, labels))
    found, expected = frontier_values(ordered, budgets), frontier_at(ordered, budgets.unsqueeze(-1)).value.T
    # Logarithms of a thousand are known to a thousand roundings of one.
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert ((found == 0) | (transfer_cost(student, teacher, labels).unsqueeze(-1) > budgets)).all()


def test_values_from_sums_take_sets_and_classes_that_are_ruled_out():
    student = torch.randn(50, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    teacher = student.flip(0).clone()
    teacher[:, 2] = -torch.inf
    shares = torch.zeros(50, 8, dtype=torch.float64)
    shares[:, 0] = shares[:, 5] = 0.5
    for labels in (torch.full((50,), 7), shares):
        ordered = order_by_gap(split_pair(student, teacher, labels))
        budgets = torch.tensor([0.0, 0.2, 1.0, 5.0], dtype=torch.float64)
        found, expected = frontier_values(ordered, budgets), frontier_at(ordered, budgets.unsqueeze(-1)).value.T
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
