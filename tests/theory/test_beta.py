"""Every statement about a complete step at coefficients other than the paper's 1/2, against steps that are taken."""

import itertools
import math

import pytest
import torch

import oracles
from strategies import all_kinds, make_pairs
from theory.checks import inner, rounding
from tpkd.geometry import (
    coefficient_constant,
    conditional_loss,
    directions,
    joint_cosine_bound,
    joint_distortion_limit,
    label_loss,
    margins,
    retention_bound,
)
from tpkd.theory import (
    batch_alignment,
    diagnose,
    extra_label_gain,
    extra_margin,
    joint_alignment,
    own_descent,
    own_step_limit,
    potential_gradient,
)

CLASSES = [3, 10, 100]
BETAS = [0.1, 1.0, 3.0]

of_every_size = pytest.mark.parametrize("num_classes", CLASSES)
of_every_beta = pytest.mark.parametrize("beta", BETAS)


@of_every_size
@of_every_beta
@pytest.mark.parametrize("step_size", [0.05, 5.0])
def test_extra_margin_is_what_the_steps_give(num_classes, beta, step_size):
    """eq:extra-margin-bound with beta in place of 1/2: eta beta [r_j - q_j + l]_+ <= 3 eta beta TV(q, r) / 2."""
    student, teacher, labels = make_pairs("random", 200, num_classes, seed=7)
    step = directions(student, teacher, labels, beta=beta)
    extra = extra_margin(student, teacher, labels, step_size, beta=beta)
    taken = margins(student - step_size * step.update, labels) - margins(student - step_size * step.label, labels)
    torch.testing.assert_close(extra.gain, taken, rtol=0, atol=1e-11 * (1 + step_size * beta))
    assert (extra.gain >= 0).all()
    assert (extra.gain <= extra.bound.unsqueeze(-1) * (1 + 1e-12)).all()


@of_every_size
@of_every_beta
def test_extra_label_gain_is_a_chain(num_classes, beta):
    """eq:extra-ce-bound with beta in place of 1/2."""
    student, teacher, labels = all_kinds(300, num_classes, seed=8)
    extra = extra_label_gain(student, teacher, labels, 0.8, beta=beta)
    step = directions(student, teacher, labels, beta=beta)
    taken = label_loss(student - 0.8 * step.label, labels) - label_loss(student - 0.8 * step.update, labels)
    torch.testing.assert_close(extra.gain, taken, rtol=1e-9, atol=1e-9)
    chain = [torch.zeros_like(extra.gain), extra.gain, extra.first_order, extra.bound, extra.initial_bound]
    for low, high in itertools.pairwise(chain):
        assert (low <= high * (1 + 1e-9) + 2e-12).all()


@of_every_size
@of_every_beta
def test_own_descent_and_its_bound(num_classes, beta):
    """eq:own-shape-direction: u'v = u'h + beta ||d||^2 >= -||h|| ||u|| + beta gamma_K ||u||^2."""
    student, teacher, labels = all_kinds(300, num_classes, seed=5)
    own = own_descent(student, teacher, labels, beta=beta)
    step = directions(student, teacher, labels, beta=beta)
    slack = (1 + beta) * rounding(inner(step.conditional, step.conditional))
    assert ((own.rate - inner(step.conditional, step.label + beta * step.safe)).abs() <= slack).all()
    assert (own.rate >= own.lower_bound - slack).all()


@of_every_size
@of_every_beta
def test_certain_own_steps_lower_the_conditional_loss(num_classes, beta):
    """eq:own-shape-condition with ||h|| / ||u|| < beta gamma_K."""
    student, teacher, labels = make_pairs("random", 300, num_classes, seed=6)
    lead = torch.linspace(-2, 6, 300, dtype=torch.float64).unsqueeze(-1)
    student = student.scatter(-1, labels.unsqueeze(-1), student.logsumexp(-1, keepdim=True) + lead)
    limit = own_step_limit(student, teacher, labels, beta=beta)
    step = directions(student, teacher, labels, beta=beta)
    norms = step.label.norm(dim=-1) / step.conditional.norm(dim=-1)
    assert torch.equal(limit.certain, norms < beta * retention_bound(num_classes))
    assert 0 < limit.certain.sum() < 300
    before = conditional_loss(student, teacher, labels)
    for share in (1e-3, 0.5, 0.99):
        after = conditional_loss(student - share * limit.step_limit.unsqueeze(-1) * step.update, teacher, labels)
        assert (after < before)[limit.certain].all()


@of_every_size
@of_every_beta
def test_diagnosed_cosine_is_that_of_the_step_with_this_coefficient(num_classes, beta):
    student, teacher, labels = make_pairs("random", 60, num_classes, seed=0)
    found, usual = diagnose(student, teacher, labels, beta=beta), diagnose(student, teacher, labels)
    for i, y in enumerate(labels.tolist()):
        step = oracles.directions(
            student[i].numpy(), teacher[i].numpy(), y, beta, projection=oracles.project_by_bisection
        )
        g, v = 4 * step["label"] + step["conditional"], step["update"]
        expected = g @ v / math.sqrt((g @ g) * (v @ v))
        assert found.update_cosine[i].item() == pytest.approx(expected, rel=1e-6, abs=1e-6)
    for name in set(found.names()) - {"update_cosine"}:
        assert torch.equal(getattr(found, name), getattr(usual, name)), name


@of_every_size
@of_every_beta
def test_joint_alignment_has_the_general_bound(num_classes, beta):
    """Proof of eq:general-coefficient-descent: g'v >= c_{4,beta} (||h||^2 + ||u||^2), hence a bound of the cosine."""
    student, teacher, labels = all_kinds(300, num_classes, seed=1)
    aligned = joint_alignment(student, teacher, labels, beta=beta)
    step, g = directions(student, teacher, labels, beta=beta), potential_gradient(student, teacher, labels)
    expected = coefficient_constant(4.0, beta, num_classes) * (
        inner(step.label, step.label) + inner(step.conditional, step.conditional)
    )
    torch.testing.assert_close(aligned.lower_bound, expected)
    torch.testing.assert_close(aligned.inner_product, inner(g, step.label + beta * step.safe))
    slack = (1 + beta) * rounding(inner(g, g))
    assert (aligned.inner_product >= aligned.lower_bound - slack).all()
    clear = g.abs().amax(-1) > 1e-6  # below, entries are rounding
    bound = joint_cosine_bound(num_classes, beta=beta)
    if bound > 0:
        assert (aligned.cosine[clear] >= bound - 1e-9).all()
        batch = batch_alignment(student, teacher, labels, beta=beta)
        assert batch.inner_product >= batch.lower_bound
        assert batch.cosine >= bound


def test_the_papers_own_bound_is_claimed_at_one_half_alone():
    """At beta = 1 a fair share of states breaks ||v||^2 + gamma_K ||g||^2 / 4, which must not be handed out there."""
    student, teacher, labels = make_pairs("random", 500, 10, seed=1)
    g, v = potential_gradient(student, teacher, labels), directions(student, teacher, labels, beta=1.0).update
    own = inner(v, v) + retention_bound(10) / 4 * inner(g, g)
    assert (inner(g, v) < own - 1e-9).double().mean() > 0.01
    at_half = joint_alignment(student, teacher, labels, beta=0.5)
    v = directions(student, teacher, labels).update
    torch.testing.assert_close(at_half.lower_bound, inner(v, v) + retention_bound(10) / 4 * inner(g, g))


@of_every_size
def test_constants_at_any_coefficient(num_classes):
    gamma = retention_bound(num_classes)
    assert joint_cosine_bound(num_classes) == math.sqrt(gamma)
    assert joint_distortion_limit(num_classes, beta=0.5) == joint_distortion_limit(num_classes)
    for beta in (0.2, 0.7, 1.0, 5.0):
        # The least value of (w x^2 - x + beta gamma) / ((w x + 1)(x + beta)) over x = ||h|| / ||u||, on a fine grid.
        x = torch.logspace(-6, 6, 200_001, dtype=torch.float64)
        least = ((4 * x**2 - x + beta * gamma) / ((4 * x + 1) * (x + beta))).min().item()
        bound = joint_cosine_bound(num_classes, beta=beta)
        assert 0 < bound < math.sqrt(gamma)
        assert bound == pytest.approx(least, rel=1e-6)
        assert joint_distortion_limit(num_classes, beta=beta) == pytest.approx((1 + bound) / (1 - bound))
    # 4 w beta gamma_K <= 1: nothing is certain, and no ratio is below 1.
    assert joint_cosine_bound(num_classes, beta=0.05) == 0
    assert joint_distortion_limit(num_classes, beta=0.05) == 1


@pytest.mark.parametrize("function", [extra_margin, extra_label_gain, own_descent, own_step_limit, diagnose])
@pytest.mark.parametrize("beta", [-0.5, math.inf, math.nan])
def test_a_coefficient_that_is_none_is_refused(function, beta):
    logits, labels = torch.zeros(1, 3), torch.zeros(1, dtype=torch.long)
    step = (0.1,) if function in (extra_margin, extra_label_gain) else ()
    with pytest.raises(ValueError, match="beta: expected a nonnegative finite weight"):
        function(logits, logits, labels, *step, beta=beta)
