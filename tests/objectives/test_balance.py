"""Weights of several losses: min-norm weights by their optimality conditions, Adam against torch's."""

import numpy as np
import pytest
import torch

from objectives import reference
from objectives.worked import GRADIENT, double
from tpkd.objectives import (
    AdamState,
    adam_step,
    amortised_gradient,
    effective_weights,
    literal_gradient,
    min_norm_weights,
)


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_shortest(gradients, weights, tolerance=1e-9):
    """The optimality conditions: on the simplex, and no gradient lies nearer to the origin along the solution."""
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(), torch.ones((), dtype=weights.dtype), atol=1e-12, rtol=0)
    step = weights @ gradients
    scale = gradients.square().sum(-1).max()
    assert ((gradients @ step) >= step @ step - tolerance * scale).all()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_min_norm_weights_satisfy_the_optimality_conditions(count):
    for seed in range(60):
        scale = 10.0 ** torch.randint(-3, 4, (count, 1), generator=torch.Generator().manual_seed(seed))
        gradients = normal(count, 4, seed=seed) * scale.double()
        assert_shortest(gradients, min_norm_weights(gradients))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_min_norm_weights_match_a_general_solver(count):
    for seed in range(20):
        gradients = normal(count, 6, seed=seed) + 0.5
        found = min_norm_weights(gradients) @ gradients
        expected = reference.min_norm(gradients.numpy()) @ gradients.numpy()
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)  # the solver's own accuracy


def test_collinear_gradients_take_the_shorter_one_instead_of_stopping():
    """The unclipped closed form would give (-1, 2) and a step of zero without any conflict."""
    short = normal(4)
    assert min_norm_weights(torch.stack([2 * short, short])).tolist() == [0.0, 1.0]
    assert min_norm_weights(torch.stack([short, 2 * short])).tolist() == [1.0, 0.0]


def test_equal_gradients_weigh_the_same():
    for count in (2, 3, 4):
        weights = min_norm_weights(normal(4).expand(count, 4))
        torch.testing.assert_close(weights, torch.full((count,), 1 / count, dtype=torch.float64), atol=1e-9, rtol=0)
        assert torch.equal(min_norm_weights(torch.zeros(count, 4)).sum(), torch.ones(()))


def test_opposite_gradients_cancel():
    g = normal(4)
    for gradients in (torch.stack([g, -g]), torch.stack([g, -g, 3 * g])):
        assert (min_norm_weights(gradients) @ gradients).abs().max() < 1e-12


def test_dependent_gradients_of_three_losses_are_solved():
    a, b = normal(2, 5, seed=3)
    for gradients in (torch.stack([a, b, (a + b) / 2]), torch.stack([a, a, b]), torch.stack([a, 0 * a, b])):
        assert_shortest(gradients, min_norm_weights(gradients))


def test_effective_weights_sum_to_one_or_grow_with_vanishing_losses():
    pi, losses = torch.tensor([0.3, 0.7], dtype=torch.float64), torch.tensor([1e-6, 2.0], dtype=torch.float64)
    assert effective_weights(pi, losses).sum() == pytest.approx(1)
    assert effective_weights(pi, losses, normalise=False)[0] > 1e5
    assert effective_weights(pi, torch.zeros(2, dtype=torch.float64)).tolist() == pytest.approx([0.3, 0.7])


def test_amortised_gradient_is_that_of_the_weighted_progress():
    """d/dw <softmax(w), delta> by autograd."""
    w = normal(3, seed=5).requires_grad_()
    before, after = normal(3, seed=6).exp(), normal(3, seed=7).exp()
    delta = before.log() - after.log()
    (expected,) = torch.autograd.grad(w.softmax(0) @ delta, w)
    torch.testing.assert_close(amortised_gradient(w.detach(), before, after), expected, atol=1e-6, rtol=0)  # L + 1e-8


def test_literal_gradient_is_that_of_the_printed_square():
    pi = normal(3, seed=8).softmax(0).requires_grad_()
    losses = normal(3, seed=9).exp()
    (expected,) = torch.autograd.grad((pi @ losses.log()).square() / 2, pi)
    torch.testing.assert_close(literal_gradient(pi.detach(), losses), expected, atol=1e-6, rtol=0)  # L + 1e-8


def test_adam_is_torchs():
    parameter = torch.nn.Parameter(normal(3, seed=10))
    optimiser = torch.optim.Adam([parameter], lr=0.025, weight_decay=0.01)
    state = AdamState.start(parameter.detach().clone())
    for step in range(20):
        gradient = normal(3, seed=20 + step)
        parameter.grad = gradient.clone()
        optimiser.step()
        state = adam_step(state, gradient)
    torch.testing.assert_close(state.weights, parameter.detach(), atol=1e-14, rtol=0)
    assert state.step == 20


def test_worked_min_norm_weights():
    gradients = double([[1, 2, 0], [2, -1, 1]])
    gram = gradients @ gradients.T
    assert gram.tolist() == [[5, 0], [0, 6]]
    weights = min_norm_weights(gradients)
    torch.testing.assert_close(weights, double([6 / 11, 5 / 11]), atol=1e-15, rtol=0)
    torch.testing.assert_close(weights @ gradients, double([16 / 11, 7 / 11, 5 / 11]), atol=1e-15, rtol=0)


def test_worked_amortised_step():
    before, after, w = double([1.2, 0.8]), double([1.1, 0.79]), torch.zeros(2, dtype=torch.float64)
    torch.testing.assert_close(effective_weights(w.softmax(0), before), double([0.4, 0.6]), atol=1e-8, rtol=0)
    delta = before.log() - after.log()
    torch.testing.assert_close(delta, double([0.08701138, 0.01257878]), atol=GRADIENT, rtol=0)
    gradient = amortised_gradient(w, before, after)
    torch.testing.assert_close(gradient, double([0.01860815, -0.01860815]), atol=GRADIENT, rtol=0)
    moved = adam_step(AdamState.start(w), gradient).weights
    torch.testing.assert_close(moved, double([-0.02499999, 0.02499999]), atol=GRADIENT, rtol=0)
    torch.testing.assert_close(moved.softmax(0), double([0.48750261, 0.51249739]), atol=GRADIENT, rtol=0)
