import itertools
import math

import pytest
import torch

import oracles
from strategies import KINDS, all_kinds, make_pairs, one_positive_deviation
from theory.checks import inner, rounding
from tpkd.geometry import conditional_loss, directions, label_loss, retention_bound, split
from tpkd.theory import (
    alignment_expansion,
    batch_alignment,
    ce_interaction,
    joint_alignment,
    joint_potential,
    own_descent,
    own_step_limit,
    potential_gradient,
)

CLASSES = [3, 10, 100]


@pytest.mark.parametrize("label_weight", [4.0, 0.5])
@pytest.mark.parametrize("num_classes", CLASSES)
def test_potential_and_its_gradient(num_classes, label_weight):
    student, teacher, labels = make_pairs("random", 100, num_classes, seed=0)
    z = student.clone().requires_grad_()
    potential = joint_potential(z, teacher, labels, label_weight=label_weight)
    for i, y in enumerate(labels.tolist()):
        s, t = student[i].numpy(), teacher[i].numpy()
        expected = label_weight * oracles.label_loss(s, y) + oracles.conditional_loss(s, t, y)
        assert potential[i].item() == pytest.approx(expected, rel=1e-10, abs=1e-12)
    (gradient,) = torch.autograd.grad(potential.sum(), z)
    closed = potential_gradient(student, teacher, labels, label_weight=label_weight)
    torch.testing.assert_close(gradient, closed, rtol=0, atol=1e-13)


@pytest.mark.parametrize("num_classes", CLASSES)
@pytest.mark.parametrize("kind", KINDS)
def test_joint_alignment_bounds(num_classes, kind):
    """eq:full-alignment, prop:full-alignment through the public record."""
    student, teacher, labels = make_pairs(kind, 300, num_classes, seed=1)
    aligned = joint_alignment(student, teacher, labels)
    g = potential_gradient(student, teacher, labels)
    slack = rounding(inner(g, g))
    assert (aligned.inner_product >= aligned.lower_bound - slack).all()
    clear = g.abs().amax(-1) > 1e-6  # below, entries are rounding
    assert (aligned.cosine[clear] >= math.sqrt(retention_bound(num_classes)) - 1e-9).all()
    assert (aligned.cosine <= 1 + 1e-12).all()


def test_cosine_is_exact_for_a_nearly_finished_student():
    """u = 0 and 1 - rho = 1e-200: g = 4 h and v = h, whose squares underflow."""
    student = torch.tensor([[460.0, 0.0, 1.0, 0.5]], dtype=torch.float64)
    teacher = torch.tensor([[1.0, 0.0, 1.0, 0.5]], dtype=torch.float64)
    assert joint_alignment(student, teacher, torch.tensor([0])).cosine.item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("num_classes", CLASSES)
@pytest.mark.parametrize("kind", KINDS)
def test_alignment_expansion(num_classes, kind):
    """eq:alignment-expansion: the five terms add up to the slack, and each has its sign."""
    student, teacher, labels = make_pairs(kind, 300, num_classes, seed=2)
    parts = alignment_expansion(student, teacher, labels)
    g = potential_gradient(student, teacher, labels)
    slack = rounding(inner(g, g))
    total = parts.label_term + parts.agreement_term + parts.polar_term + parts.kept_term + parts.removed_term
    assert ((parts.slack - total).abs() <= slack).all()
    for term in (parts.label_term, parts.agreement_term, parts.polar_term, parts.kept_term + parts.removed_term):
        assert (term >= -slack).all()


@pytest.mark.parametrize("num_classes", CLASSES)
def test_alignment_is_sharp_as_confidence_goes_to_one(num_classes):
    """Appendix C.1: with the tight u fixed and rho to 1, cos(g, v) falls to sqrt(gamma) and the slack to 0."""
    cosines, slacks = [], []
    for residual in (1e-1, 1e-3, 1e-5, 1e-7):
        case = one_positive_deviation(num_classes, size=0.5, confidence=1 - residual)
        example = (case.student, case.teacher, torch.tensor(0))
        cosines.append(joint_alignment(*example).cosine.item())
        slacks.append(alignment_expansion(*example).slack.item())
    bound = math.sqrt(retention_bound(num_classes))
    # With many classes u is of the order of 1 / K, and h matters until 1 - rho is well below that.
    assert bound <= cosines[-1] <= bound + 1e-4 * num_classes
    assert all(low > high for low, high in itertools.pairwise(cosines))
    assert 0 <= slacks[-1] < 1e-6


@pytest.mark.parametrize("num_classes", CLASSES)
def test_batch_alignment(num_classes):
    """eq:sector: the stacked batch obeys the bound of one example."""
    student, teacher, labels = all_kinds(200, num_classes, seed=3)
    each, batch = joint_alignment(student, teacher, labels), batch_alignment(student, teacher, labels)
    torch.testing.assert_close(batch.inner_product, each.inner_product.mean())
    torch.testing.assert_close(batch.lower_bound, each.lower_bound.mean())
    assert batch.inner_product >= batch.lower_bound
    assert batch.cosine >= math.sqrt(retention_bound(num_classes))
    g, v = potential_gradient(student, teacher, labels), directions(student, teacher, labels).update
    torch.testing.assert_close(batch.cosine, (g * v).sum() / (g.norm() * v.norm()))


@pytest.mark.parametrize("num_classes", CLASSES)
def test_ce_interaction_in_both_forms(num_classes):
    """eq:ce-shape-interaction: u'h against both printed forms, with either sign in a fair share of draws."""
    student, _, labels = make_pairs("random", 300, num_classes, seed=4)
    # A teacher sharper than the student is worked against by the label step, a flatter one is helped.
    teacher = student * torch.linspace(0.5, 2, 300, dtype=torch.float64).unsqueeze(-1)
    r, q = (split(z, labels).log_conditional.exp() for z in (student, teacher))
    residual = split(student, labels).log_residual.exp()
    actual = ce_interaction(student, teacher, labels)
    torch.testing.assert_close(actual, residual * ((r - q) * r).sum(-1), rtol=0, atol=1e-15)
    squares = (r - q).square().sum(-1) + r.square().sum(-1) - q.square().sum(-1)
    torch.testing.assert_close(actual, residual / 2 * squares, rtol=0, atol=1e-15)
    assert 0.2 <= (actual < 0).double().mean() <= 0.8


@pytest.mark.parametrize("num_classes", CLASSES)
@pytest.mark.parametrize("kind", KINDS)
def test_own_descent(num_classes, kind):
    """eq:own-shape-direction: u'v = u'h + ||d||^2 / 2, and its lower bound."""
    student, teacher, labels = make_pairs(kind, 300, num_classes, seed=5)
    own = own_descent(student, teacher, labels)
    step = directions(student, teacher, labels)
    slack = rounding(inner(step.conditional, step.conditional))
    expected = ce_interaction(student, teacher, labels) + inner(step.safe, step.safe) / 2
    assert ((own.rate - expected).abs() <= slack).all()
    assert (own.rate >= own.lower_bound - slack).all()


@pytest.mark.parametrize("num_classes", CLASSES)
def test_own_step_lowers_its_conditional_loss(num_classes):
    """eq:own-shape-condition: below the limit every certain step lowers the conditional loss."""
    student, teacher, labels = make_pairs("random", 600, num_classes, seed=6)
    lead = torch.linspace(-2, 6, 600, dtype=torch.float64)
    at_label = labels.unsqueeze(-1)
    student = student.scatter(-1, at_label, student.logsumexp(-1, keepdim=True) + lead.unsqueeze(-1))
    limit = own_step_limit(student, teacher, labels)
    assert 0.2 <= limit.certain.double().mean() <= 0.8
    assert (limit.step_limit[limit.certain] > 0).all()
    assert (limit.step_limit[~limit.certain] == 0).all()
    step = directions(student, teacher, labels)
    norms = step.label.norm(dim=-1) / step.conditional.norm(dim=-1)
    assert torch.equal(limit.certain, norms < retention_bound(num_classes) / 2)
    before = conditional_loss(student, teacher, labels)
    for share in (1e-3, 0.1, 0.5, 0.99):
        after = conditional_loss(student - share * limit.step_limit.unsqueeze(-1) * step.update, teacher, labels)
        assert (after < before)[limit.certain].all()


def test_a_complete_step_can_raise_its_conditional_loss():
    """Why eq:own-shape-condition is needed: an uncertain student whose label step works against the teacher."""
    student = torch.tensor([[0.2, 0.48, 0.32]], dtype=torch.float64).log()
    teacher = torch.tensor([[0.1, 0.585, 0.315]], dtype=torch.float64).log()
    labels = torch.tensor([0])
    assert not own_step_limit(student, teacher, labels).certain
    assert own_descent(student, teacher, labels).rate < 0
    after = student - 0.1 * directions(student, teacher, labels).update
    assert conditional_loss(after, teacher, labels) > conditional_loss(student, teacher, labels)


def test_potential_refuses_a_weight_that_is_not_positive():
    with pytest.raises(ValueError, match="label_weight: expected a positive finite number, got 0"):
        joint_potential(torch.zeros(1, 3), torch.zeros(1, 3), torch.zeros(1, dtype=torch.long), label_weight=0.0)


def test_potential_vanishes_where_both_kinds_of_learning_are_complete():
    student = torch.tensor([[900.0, 1.0, 0.0]], dtype=torch.float64)
    teacher = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([0])
    assert joint_potential(student, teacher, labels) == 0
    assert label_loss(student, labels) == 0
