import pytest
import torch

from strategies import all_kinds
from tpkd.geometry import directions, in_safe_set, label_loss, margin_gain, margins, weighted_label_loss


def test_margins_are_leads_in_class_order():
    logits = torch.tensor([[3.0, 1.0, 0.0, 2.0]])
    assert margins(logits, torch.tensor([3])).tolist() == [[-1.0, 1.0, 2.0]]


def test_unit_weights_give_cross_entropy():
    student, _, labels = all_kinds(100, 12, seed=6)
    ones = torch.ones(11, dtype=torch.float64)
    assert torch.allclose(weighted_label_loss(student, labels, ones), label_loss(student, labels), rtol=1e-12, atol=0)


def test_no_competitor_means_no_loss():
    loss = weighted_label_loss(torch.randn(3, 4), torch.tensor([0, 1, 2]), torch.zeros(3, 3))
    assert torch.equal(loss, torch.zeros(3))


def test_negative_weights_are_refused():
    with pytest.raises(ValueError, match="weights: expected nonnegative"):
        weighted_label_loss(torch.randn(1, 3), torch.tensor([0]), torch.tensor([1.0, -1.0]))


def test_keeping_all_margins_is_the_same_as_raising_no_weighted_loss():
    """Appendix A.1 about eq:safeset, both directions: a lost margin shows in the loss that isolates its competitor."""
    generator = torch.Generator().manual_seed(7)
    before = torch.randn(600, 6, generator=generator, dtype=torch.float64)
    after = before + 0.3 * torch.randn(600, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(6, (600,), generator=generator)
    after = after.scatter_add(-1, labels.unsqueeze(-1), torch.full((600, 1), 0.4, dtype=torch.float64))
    keeps = in_safe_set(after, before, labels)
    assert 0.2 < keeps.double().mean() < 0.8
    raises_one = torch.zeros(600, dtype=torch.bool)
    for isolated in torch.eye(5, dtype=torch.float64):
        raises_one |= weighted_label_loss(after, labels, isolated) > weighted_label_loss(before, labels, isolated)
    assert torch.equal(keeps, ~raises_one)
    for _ in range(20):
        weights = torch.rand(600, 5, generator=generator, dtype=torch.float64) * 3
        change = weighted_label_loss(after, labels, weights) - weighted_label_loss(before, labels, weights)
        assert (change[keeps] <= 1e-15).all()


def test_margin_gain_is_the_change_of_margins_of_the_step():
    student, teacher, labels = all_kinds(100, 7, seed=8)
    direction = directions(student, teacher, labels).update
    student = student.clamp(-10, 10)
    change = margins(student - 0.3 * direction, labels) - margins(student, labels)
    assert torch.allclose(margin_gain(direction, labels, 0.3), change, atol=1e-13)
