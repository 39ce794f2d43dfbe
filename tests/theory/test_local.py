import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from strategies import KINDS, all_kinds, make_pairs, one_positive_deviation
from tpkd.geometry import conditional_loss, directions, in_safe_cone, project_safe_cone, retention_bound
from tpkd.theory import (
    fixed_length_optimum,
    local_clipped_gradient,
    local_clipped_loss,
    quadratic_optimum,
)

CLASSES = [3, 10, 100]


@pytest.mark.parametrize("num_classes", CLASSES)
@pytest.mark.parametrize("kind", KINDS)
def test_local_loss_has_the_safe_direction_as_gradient(num_classes, kind):
    """eq:local-clipped-loss, eq:local-clipped-gradient by autograd at the reference."""
    student, teacher, labels = make_pairs(kind, 100, num_classes, seed=0)
    z = student.clone().requires_grad_()
    loss = local_clipped_loss(z, student, teacher, labels)
    assert loss.isfinite().all()
    (gradient,) = torch.autograd.grad(loss.sum(), z)
    d = directions(student, teacher, labels).safe
    # The logarithms of the huge kind reach a few thousand, whose rounding is 1e-12 of the probability.
    torch.testing.assert_close(gradient, d, rtol=0, atol=1e-11 if kind == "huge" else 1e-14)
    # The heaviest class of d takes minus the sum of all others: a hundred roundings of at most 1e-16.
    torch.testing.assert_close(local_clipped_gradient(student, student, teacher, labels), d, rtol=0, atol=1e-14)


@pytest.mark.parametrize("num_classes", CLASSES)
def test_local_gradient_holds_away_from_the_reference(num_classes):
    """eq:local-clipped-gradient is the gradient everywhere; only at the reference it is d."""
    reference, teacher, labels = make_pairs("random", 100, num_classes, seed=1)
    z = make_pairs("random", 100, num_classes, seed=2).student.requires_grad_()
    (gradient,) = torch.autograd.grad(local_clipped_loss(z, reference, teacher, labels).sum(), z)
    closed = local_clipped_gradient(z.detach(), reference, teacher, labels)
    torch.testing.assert_close(gradient, closed, rtol=0, atol=1e-13)


def test_no_gradient_reaches_the_reference():
    student, teacher, labels = make_pairs("random", 5, 4, seed=3)
    reference = student.clone().requires_grad_()
    loss = local_clipped_loss(student.clone().requires_grad_(), reference, teacher, labels).sum()
    assert torch.autograd.grad(loss, reference, allow_unused=True) == (None,)


def best_safe_step(u, label, budget):
    """max u'x over the safe cone with ||x|| <= S, by SLSQP."""
    free = [j for j in range(len(u)) if j != label]
    constraints = [
        {"type": "ineq", "fun": lambda x: x[free] - x[label]},
        {"type": "ineq", "fun": lambda x: budget**2 - x @ x, "jac": lambda x: -2 * x},
    ]
    start = np.full(len(u), 0.1 * budget / len(u))
    start[label] *= -1
    solved = minimize(lambda x: -(u @ x), start, jac=lambda x: -u, method="SLSQP", constraints=constraints)
    return -solved.fun, solved.x


@pytest.mark.parametrize("num_classes", [3, 8])
def test_fixed_length_optimum_against_slsqp(num_classes):
    """eq:fixed-budget-optimum."""
    student, teacher, labels = make_pairs("ties", 15, num_classes, seed=4)
    best = fixed_length_optimum(student, teacher, labels, 2.0)
    step = directions(student, teacher, labels)
    for i, y in enumerate(labels.tolist()):
        value, _ = best_safe_step(step.conditional[i].numpy(), y, 2.0)
        assert best.progress[i].item() == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("num_classes", CLASSES)
def test_fixed_length_optimum_is_attained_and_safe(num_classes):
    student, teacher, labels = all_kinds(200, num_classes, seed=5)
    best = fixed_length_optimum(student, teacher, labels, 0.7)
    step = directions(student, teacher, labels)
    assert in_safe_cone(best.displacement, labels).all()
    u_x = (step.conditional * best.displacement).sum(-1)
    torch.testing.assert_close(u_x, best.progress, rtol=1e-7, atol=1e-15)
    left = step.conditional.abs().amax(-1) > 1e-9
    assert left.double().mean() > 0.5
    torch.testing.assert_close(best.displacement[left].norm(dim=-1), torch.full((int(left.sum()),), 0.7).double())
    ratio = (best.progress / best.unconstrained_progress)[left]
    assert (ratio >= retention_bound(num_classes) ** 0.5 - 1e-7).all()


def test_fixed_length_optimum_beats_random_safe_steps():
    student, teacher, labels = make_pairs("random", 100, 6, seed=6)
    best = fixed_length_optimum(student, teacher, labels, 1.0)
    other = project_safe_cone(torch.randn(200, 100, 6, dtype=torch.float64), labels.expand(200, 100))
    other = other / other.norm(dim=-1, keepdim=True)
    progress = (directions(student, teacher, labels).conditional * other).sum(-1)
    assert (progress <= best.progress + 1e-14).all()


def test_fixed_length_optimum_where_nothing_is_left():
    student, _, labels = all_kinds(30, 5, seed=7)
    best = fixed_length_optimum(student, student, labels, 1.0)
    assert (best.displacement == 0).all()
    assert (best.progress == 0).all()
    assert (best.unconstrained_progress == 0).all()


def quadratic_model(displacement, student, teacher, labels, smoothness=0.5):
    """Appendix B.8: Q_u(x) = u'x - (L / 2) ||x||^2."""
    u = directions(student, teacher, labels).conditional
    return (u * displacement).sum(-1) - smoothness / 2 * displacement.square().sum(-1)


@pytest.mark.parametrize("smoothness", [0.5, 2.0])
@pytest.mark.parametrize("num_classes", CLASSES)
def test_quadratic_optimum(num_classes, smoothness):
    """eq:quadratic-optima: the value is that of the model at d / L, and no safe displacement has more."""
    student, teacher, labels = make_pairs("random", 100, num_classes, seed=8)
    best = quadratic_optimum(student, teacher, labels, smoothness)
    model = quadratic_model(best.displacement, student, teacher, labels, smoothness)
    torch.testing.assert_close(model, best.progress, rtol=1e-9, atol=1e-15)
    assert in_safe_cone(best.displacement, labels).all()
    size = torch.logspace(-3, 1, 50, dtype=torch.float64).view(-1, 1, 1)
    noise = torch.randn(50, 100, num_classes, dtype=torch.float64) * size
    other = project_safe_cone(best.displacement + noise, labels.expand(50, 100))
    for x in other:
        assert (quadratic_model(x, student, teacher, labels, smoothness) <= best.progress + 1e-14).all()
    u = directions(student, teacher, labels).conditional
    free = quadratic_model(u / smoothness, student, teacher, labels, smoothness)
    torch.testing.assert_close(free, best.unconstrained_progress, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("num_classes", CLASSES)
def test_quadratic_model_is_guaranteed_decrease(num_classes):
    """Appendix B.7: the conditional loss is 1/2-smooth, so Q_u is a lower bound on its decrease."""
    student, teacher, labels = make_pairs("random", 200, num_classes, seed=9)
    for scale in (0.01, 0.3, 3.0):
        x = scale * torch.randn(200, num_classes, dtype=torch.float64)
        decrease = conditional_loss(student, teacher, labels) - conditional_loss(student - x, teacher, labels)
        assert (decrease >= quadratic_model(x, student, teacher, labels) - 1e-12).all()


def test_quadratic_ratio_is_tight():
    case = one_positive_deviation(10, size=0.5)
    best = quadratic_optimum(case.student, case.teacher, torch.tensor(0))
    assert (best.progress / best.unconstrained_progress).item() == pytest.approx(retention_bound(10), rel=1e-12)


@pytest.mark.parametrize("smoothness", [0.0, -1.0, float("inf")])
def test_quadratic_optimum_refuses_a_smoothness_that_is_not_positive(smoothness):
    with pytest.raises(ValueError, match="smoothness: expected a positive finite number"):
        quadratic_optimum(torch.zeros(1, 3), torch.zeros(1, 3), torch.zeros(1, dtype=torch.long), smoothness)
