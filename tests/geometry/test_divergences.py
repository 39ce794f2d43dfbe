import pytest
import torch

import oracles
from strategies import KINDS, all_kinds, make_pairs
from theory.checks import total_variation
from tpkd.geometry import (
    binary_kl_divergence,
    conditional_loss,
    imitation_loss,
    kl_divergence,
    label_loss,
    max_log_ratio,
    split,
)


@pytest.mark.parametrize("kind", KINDS)
def test_losses_agree_with_their_definitions(kind):
    student, teacher, labels = make_pairs(kind, 40, 8, seed=3)
    label, conditional = label_loss(student, labels), conditional_loss(student, teacher, labels)
    imitation = imitation_loss(student, teacher, labels)
    for i, y in enumerate(labels.tolist()):
        z, zt = student[i].numpy(), teacher[i].numpy()
        assert label[i].item() == pytest.approx(oracles.label_loss(z, y), rel=1e-12, abs=1e-300)
        assert conditional[i].item() == pytest.approx(oracles.conditional_loss(z, zt, y), rel=1e-11, abs=1e-12)
        assert imitation[i].item() == pytest.approx(oracles.imitation_loss(z, zt), rel=1e-11, abs=1e-12)


def test_kldecomp_splits_full_imitation_into_confidence_and_conditional_part():
    """eq:kldecomp, against KL(t || p) over all classes."""
    student, teacher, labels = all_kinds(200, 10, seed=4)
    full = (teacher.log_softmax(-1).exp() * (teacher.log_softmax(-1) - student.log_softmax(-1))).sum(-1)
    s, t = split(student, labels), split(teacher, labels)
    confidence_part = binary_kl_divergence(t.log_odds, s.log_odds)
    conditional_part = t.log_residual.exp() * conditional_loss(student, teacher, labels)
    assert torch.allclose(confidence_part + conditional_part, full, rtol=1e-11, atol=1e-12)


def test_divergences_are_never_negative_and_zero_for_equal_predictions():
    student, _, labels = all_kinds(500, 30, seed=5)
    shifted = student + torch.randn(len(student), 1, dtype=torch.float64)
    for loss in (conditional_loss(student, shifted, labels), imitation_loss(student, shifted, labels)):
        assert (loss >= 0).all()
        assert loss.max() < 1e-11
    assert torch.equal(conditional_loss(student, student, labels), torch.zeros(len(student), dtype=torch.float64))


def test_lifting_a_rounded_divergence_keeps_its_gradient():
    log_q = torch.randn(6, dtype=torch.float64).log_softmax(-1)
    z = (log_q + 1e-9 * torch.randn(6, dtype=torch.float64)).requires_grad_()
    kl_divergence(log_q, z.log_softmax(-1)).backward()
    assert torch.allclose(z.grad, z.detach().softmax(-1) - log_q.exp(), atol=1e-15)
    assert z.grad.abs().max() > 0


def test_what_the_target_rules_out_counts_nothing():
    log_q = torch.tensor([0.25, 0.75, 0.0, 0.0], dtype=torch.float64).log()
    z = torch.tensor([0.0, 1.0, -torch.inf, 2.0], dtype=torch.float64, requires_grad=True)
    divergence = kl_divergence(log_q, z.log_softmax(-1))
    divergence.backward()
    r = z.detach().softmax(-1)
    assert torch.allclose(divergence, (log_q.exp()[:2] * (log_q[:2] - r[:2].log())).sum())
    assert torch.allclose(z.grad, r - log_q.exp())
    assert kl_divergence(z.detach().log_softmax(-1), log_q) == torch.inf


def test_what_both_rule_out_has_no_part_in_the_largest_ratio():
    log_q, log_r = torch.tensor([0.25, 0.75, 0.0]).log(), torch.tensor([0.5, 0.5, 0.0]).log()
    assert torch.equal(max_log_ratio(log_q, log_r), max_log_ratio(log_q[:2], log_r[:2]))
    assert max_log_ratio(log_q, torch.tensor([0.0, 1.0, 0.0]).log()) == torch.inf
    assert max_log_ratio(log_q, torch.full((3,), torch.nan)).isnan()


def test_total_variation_and_max_log_ratio():
    log_a, log_b = (
        torch.randn(7, 5, dtype=torch.float64).log_softmax(-1),
        torch.randn(5, dtype=torch.float64).log_softmax(-1),
    )
    a, b = log_a.exp().numpy(), log_b.exp().numpy()
    for i in range(7):
        assert total_variation(log_a[i], log_b).item() == pytest.approx(
            sum(abs(x - y) for x, y in zip(a[i], b, strict=True)) / 2
        )
        expected = max(torch.tensor(x / y).log().item() for x, y in zip(a[i], b, strict=True))
        assert max_log_ratio(log_a[i], log_b).item() == pytest.approx(expected)
