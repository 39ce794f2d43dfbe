"""Token states are those of the diagnosis of a truncated teacher, without the sort."""

from dataclasses import replace

import pytest
import torch

from tpkd.geometry import TopK
from tpkd.geometry.margins import margins
from tpkd.teacher.cache.truncation import truncate_positions
from tpkd.theory import diagnose
from tpkd.theory.tokens import token_state


def scene(top_p=None, dtype=torch.float64, k=6):
    torch.manual_seed(0)
    student = 2 * torch.randn(3, 40, 50, dtype=dtype)
    teacher = 2 * torch.randn(3, 40, 50, dtype=dtype) + student
    teacher[0] = 0.5 * student[0]  # many of these are blocked
    labels = teacher.argmax(-1)
    labels[:, ::2] = torch.randint(0, 50, labels[:, ::2].shape)
    return student, teacher, truncate_positions(teacher, labels, k, top_p), labels


@pytest.mark.parametrize("top_p", [None, 0.6])
def test_it_equals_the_diagnosis_of_a_truncated_teacher(top_p):
    student, _, kept, labels = scene(top_p)
    found, expected = token_state(student, kept, labels), diagnose(student, kept, labels)
    assert torch.equal(found.blocked, expected.blocked)
    assert 0 < found.blocked.double().mean() < 1
    for name in ("conditional_loss", "transfer_cost"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(-found.label_log_prob, expected.label_loss, atol=1e-12, rtol=1e-12)


def test_the_bounds_hold_against_the_whole_teacher():
    student, teacher, kept, labels = scene()
    found, whole = token_state(student, kept, labels), diagnose(student, teacher, labels)
    assert (found.blocked | ~whole.blocked).all()
    assert (found.conditional_loss <= whole.conditional_loss + 1e-12).all()
    assert (found.transfer_cost <= whole.transfer_cost + 1e-12).all()


def test_a_token_that_only_the_rounding_of_a_cache_unblocks_is_within_half_an_ulp_of_the_teacher():
    """What 'up to the rounding of the cache' means: the kept log-probabilities of a cache are of half precision."""
    student, _, _, labels = scene()
    others = torch.arange(50) != labels.unsqueeze(-1)
    teacher = student + 1e-6 * others  # a little above the student on every wrong token
    kept = truncate_positions(teacher, labels, 6)
    stored = kept.log_probs.half()
    rounded = replace(kept, log_probs=stored.double())
    found, whole = token_state(student, rounded, labels).blocked, diagnose(student, teacher, labels).blocked
    assert whole.all()
    lost = whole & ~found
    assert lost.any()
    half_ulp = stored.double().abs() * torch.finfo(torch.float16).eps / 2
    log_p = student.log_softmax(-1).gather(-1, kept.indices)
    assert (log_p <= stored.double() + half_ulp)[lost].all()


def test_margin_and_agreement():
    student, teacher, kept, labels = scene()
    found = token_state(student, kept, labels)
    torch.testing.assert_close(found.margin, margins(student, labels).amin(-1), atol=1e-12, rtol=1e-12)
    assert torch.equal(found.agrees, student.argmax(-1) == teacher.argmax(-1))


def test_a_teacher_without_the_label_is_refused():
    with pytest.raises(ValueError, match=r"teacher: expected label_log_probs and rest_log_probs"):
        token_state(torch.zeros(1, 4), TopK(torch.zeros(1, 1), torch.zeros(1, 1, dtype=torch.long)), torch.tensor([0]))
