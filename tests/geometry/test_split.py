import dataclasses

import numpy as np
import pytest
import torch

import oracles
from strategies import KINDS, make_pairs
from tpkd.geometry import (
    conditional_loss,
    directions,
    drop_target,
    imitation_direction,
    imitation_loss,
    insert_target,
    join,
    label_loss,
    split,
)
from tpkd.geometry.split import target_entry


def test_drop_and_insert_target_are_inverse():
    values = torch.randn(4, 5, 7, dtype=torch.float64)
    labels = torch.randint(7, (4, 5))
    rest = drop_target(values, labels)
    assert rest.shape == (4, 5, 6)
    assert torch.equal(insert_target(rest, target_entry(values, labels), labels), values)


@pytest.mark.parametrize("label", [0, 2, 4])
def test_drop_target_keeps_class_order(label):
    values = torch.arange(5.0)
    expected = torch.tensor([v for v in range(5) if v != label], dtype=torch.float32)
    assert torch.equal(drop_target(values, torch.tensor(label)), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_split_agrees_with_the_definition(kind):
    student, _, labels = make_pairs(kind, 40, 11, seed=1)
    parts = split(student, labels)
    for i, (z, y) in enumerate(zip(student.numpy(), labels.tolist(), strict=True)):
        assert parts.log_confidence[i].item() == pytest.approx(-oracles.label_loss(z, y), rel=1e-12, abs=1e-300)
        np.testing.assert_allclose(parts.log_conditional[i], oracles.conditional(z, y), rtol=1e-12, atol=1e-12)
        assert parts.log_residual[i].exp().item() == pytest.approx(oracles.residual(z, y), rel=1e-11)


def test_split_is_exact_for_a_certain_student():
    """1 - rho = 2 exp(-700) has no float64 next to one; its logarithm does."""
    parts = split(torch.tensor([700.0, 0.0, 0.0], dtype=torch.float64), torch.tensor(0))
    assert parts.log_residual.item() == pytest.approx(np.log(2) - 700, rel=1e-14)
    assert parts.log_conditional.exp().tolist() == pytest.approx([0.5, 0.5], rel=1e-14)


@pytest.mark.parametrize("shift", [3.0, 1e4, -1e5])
def test_a_common_shift_of_the_logits_changes_no_digit(shift):
    """The logits are multiples of 1/64, so that their float32 sums with the shift are exact."""
    student, teacher, labels = make_pairs("random", 200, 11, seed=4, dtype=torch.float32)
    student, teacher = ((z.clamp(-100, 100) * 64).round() / 64 for z in (student, teacher))
    shifted = student + shift, teacher + shift, labels
    assert torch.equal(shifted[0] - shift, student)
    for record, moved in (
        (split(student, labels), split(shifted[0], labels)),
        (directions(student, teacher, labels), directions(*shifted)),
    ):
        for field in dataclasses.fields(record):
            assert torch.equal(getattr(moved, field.name), getattr(record, field.name)), field.name
    assert torch.equal(label_loss(shifted[0], labels), label_loss(student, labels))
    for function in (conditional_loss, imitation_loss, imitation_direction):
        assert torch.equal(function(*shifted), function(student, teacher, labels)), function.__name__


def test_join_inverts_split():
    student, _, labels = make_pairs("random", 50, 9, seed=2)
    parts = split(student, labels)
    joined = join(parts.log_odds, parts.log_conditional, labels)
    assert torch.allclose(joined, student.log_softmax(-1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_half_precision_is_computed_and_returned_in_float32(dtype):
    parts = split(torch.randn(3, 4).to(dtype), torch.tensor([0, 1, 2]))
    assert parts.log_conditional.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
