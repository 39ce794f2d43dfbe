"""The protected loss: what it is worth, what its gradient is, and what it refuses."""

import numpy as np
import pytest
import torch

import oracles
from objectives import reference
from objectives.worked import GRADIENT, VALUE, ZT, Y, Z, assert_worked, double
from strategies import all_kinds, make_pairs
from tpkd.geometry import directions, named_direction
from tpkd.objectives import TPKDLoss, create, tpkd_loss

NAMES = ("tpkd", "tpkd-no-ce", "safe-full-kl", "tpkd-no-projection", "compensation-only")


def leaf(tensor):
    return tensor.clone().requires_grad_()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("num_classes", [3, 10, 50])
def test_value_and_gradient_of_every_kind_of_pair(name, num_classes):
    """Value by definition, gradient by non-negative least squares, one example at a time."""
    pairs = all_kinds(20, num_classes, seed=11)
    z = leaf(pairs.student)
    values = create(name)(z, pairs.teacher, pairs.labels, reduction="none")
    values.sum().backward()
    examples = zip(pairs.student.numpy(), pairs.teacher.numpy(), pairs.labels.tolist(), strict=True)
    for i, (student, teacher, y) in enumerate(examples):
        np.testing.assert_allclose(values[i].item(), reference.value(name, student, teacher, y), rtol=1e-9, atol=1e-12)
        expected = reference.direction(name, student, teacher, y)
        np.testing.assert_allclose(z.grad[i].numpy(), expected, atol=1e-12, rtol=0)


def test_eq_surrogate_has_the_same_gradient():
    """eq:surrogate: the mean of <stopgrad(v), z> gives the gradient; its own value is not one to show."""
    z, zt, y = make_pairs("random", 12, 6, seed=24)
    y_masked = y.clone()
    y_masked[5] = -100
    ours, surrogate = leaf(z), leaf(z)
    tpkd_loss(ours, zt, y_masked).backward()
    valid = y_masked != -100
    v = np.stack(
        [reference.direction("tpkd", a, b, c) for a, b, c in zip(z.numpy(), zt.numpy(), y.tolist(), strict=True)]
    )
    (torch.from_numpy(v) * surrogate).sum(-1)[valid].mean().backward()
    torch.testing.assert_close(ours.grad, surrogate.grad, atol=1e-13, rtol=0)


def test_value_is_never_negative_and_zero_when_learning_is_complete():
    z, zt, y = all_kinds(200, 6, seed=12)
    assert (tpkd_loss(z, zt, y, reduction="none") >= 0).all()
    certain = torch.zeros(1, 4).index_fill(-1, torch.tensor([2]), 1e4)
    assert tpkd_loss(certain, certain, torch.tensor([2])) == 0
    learned_relations_only = tpkd_loss(torch.zeros(1, 4), torch.zeros(1, 4), torch.tensor([2]))
    assert learned_relations_only > 1


def test_gradient_without_projection_is_the_derivative_of_its_value():
    z, zt, y = make_pairs("random", 5, 6, seed=13)
    student = leaf(z)
    create("tpkd-no-projection")(student, zt, y, reduction="sum").backward()

    def value(logits):
        return create("tpkd-no-projection")(torch.from_numpy(logits), zt, y, reduction="sum").item()

    expected = oracles.finite_difference(value, z.numpy())
    np.testing.assert_allclose(student.grad.numpy(), expected, atol=1e-7, rtol=0)


@pytest.mark.parametrize("name", NAMES)
def test_unreduced_rows_get_their_own_output_gradient_times_the_direction(name):
    z, zt, y = make_pairs("random", 8, 5, seed=14)
    labels = y.clone()
    labels[3] = -100
    student = leaf(z)
    output_gradient = torch.linspace(-2, 3, 8, dtype=torch.float64)
    create(name)(student, zt, labels, reduction="none").backward(output_gradient)
    expected = output_gradient.unsqueeze(-1) * named_direction(name, z, zt, y)
    expected[3] = 0
    torch.testing.assert_close(student.grad, expected, atol=1e-15, rtol=0)


def test_mean_divides_by_valid_positions_and_num_items_replaces_them():
    z, zt, y = make_pairs("random", 8, 5, seed=15)
    y[:3] = -100
    total = tpkd_loss(z, zt, y, reduction="sum")
    torch.testing.assert_close(tpkd_loss(z, zt, y), total / 5)
    torch.testing.assert_close(tpkd_loss(z, zt, y, num_items=20), total / 20)
    torch.testing.assert_close(tpkd_loss(z, zt, y, num_items=torch.tensor(20)), total / 20)
    assert tpkd_loss(z[:3], zt[:3], y[:3], num_items=0) == 0


def test_the_loss_may_be_weighed_like_any_other():
    """A loss scaler multiplies the value; the direction follows."""
    z, zt, y = make_pairs("random", 4, 5, seed=16)
    student = leaf(z)
    (1024 * tpkd_loss(student, zt, y)).backward()
    torch.testing.assert_close(student.grad, 1024 * named_direction("tpkd", z, zt, y) / 4, atol=1e-12, rtol=0)


def test_without_gradients_only_the_value_remains():
    z, zt, y = make_pairs("random", 4, 5, seed=19)
    with torch.no_grad():
        loss = tpkd_loss(leaf(z), zt, y)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, tpkd_loss(leaf(z), zt, y).detach(), atol=0, rtol=0)
    assert not tpkd_loss(z, zt, y).requires_grad


def test_inputs_are_left_untouched():
    z, zt, y = make_pairs("random", 4, 5, seed=20)
    student, copies = leaf(z), (z.clone(), zt.clone(), y.clone())
    tpkd_loss(student, zt, y).backward()
    for tensor, copy in zip((student.detach(), zt, y), copies, strict=True):
        assert torch.equal(tensor, copy)


def test_module_is_the_function_with_settings():
    z, zt, y = make_pairs("random", 6, 5, seed=21)
    y[2] = 7
    criterion = TPKDLoss(beta=0.25, ignore_index=7, reduction="sum")
    assert torch.equal(criterion(z, zt, y), tpkd_loss(z, zt, y, beta=0.25, ignore_index=7, reduction="sum"))
    mean = TPKDLoss(ignore_index=7)
    assert torch.equal(mean(z, zt, y, num_items=12), tpkd_loss(z, zt, y, ignore_index=7, num_items=12))
    assert repr(criterion) == "TPKDLoss(beta=0.25, ignore_index=7, reduction='sum', temperature=1.0)"
    assert not list(criterion.parameters())
    with pytest.raises(ValueError, match="beta"):
        TPKDLoss(beta=-1.0)


def test_worked_examples():
    assert_worked(
        lambda z, **tail: tpkd_loss(z, ZT, Y, **tail),
        [0.3423495824 + 0.5321229484 / 2, 1.2873386717 + 0.0992617205 / 2],
        [[-0.39604951, 0.26596992, -0.07079564, 0.20087523], [0.21499762, 0.40644040, -0.77260949, 0.15117146]],
        value=2 * VALUE,
    )


def test_worked_retention():
    step = directions(Z, ZT, Y)
    retention = (step.conditional * step.safe).sum(-1) / step.conditional.square().sum(-1)
    torch.testing.assert_close(retention, double([0.66668533, 0.66671570]), atol=GRADIENT, rtol=0)
