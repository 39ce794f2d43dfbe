import numpy as np
import pytest
import torch

import oracles
from strategies import all_kinds, blocked_pairs, make_pairs
from theory.checks import in_polar_cone
from tpkd.geometry import (
    confidence_axis,
    directions,
    imitation_direction,
    in_conditional_plane,
    in_safe_cone,
    project_safe_cone,
)
from tpkd.geometry.cone import safe_threshold


def random_directions(count, num_classes, seed):
    """Directions of any label coordinate, over six orders of magnitude, a third of them with ties."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, num_classes, generator=generator, dtype=torch.float64)
    x = torch.where(torch.arange(count).unsqueeze(-1) % 3 == 0, x.round(), x)
    scale = 10 ** (6 * torch.rand(count, 1, generator=generator, dtype=torch.float64) - 3)
    return x * scale, torch.randint(num_classes, (count,), generator=generator)


@pytest.mark.parametrize(
    ("num_classes", "oracle"),
    [(3, oracles.project), (10, oracles.project), (100, oracles.project), (1000, oracles.project_by_bisection)],
)
def test_projection_agrees_with_an_independent_solver(num_classes, oracle):
    """eq:closedproj."""
    x, labels = random_directions(1000, num_classes, seed=num_classes)
    projected = project_safe_cone(x, labels)
    for i, y in enumerate(labels.tolist()):
        size = x[i].abs().max().item()
        np.testing.assert_allclose(projected[i], oracle(x[i].numpy(), y), rtol=0, atol=1e-12 * max(size, 1))


def test_the_two_oracles_agree():
    x, labels = random_directions(20, 60, seed=0)
    for row, y in zip(x.numpy(), labels.tolist(), strict=True):
        np.testing.assert_allclose(
            oracles.project(row, y), oracles.project_by_bisection(row, y), atol=1e-11 * abs(row).max()
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("num_classes", [3, 10, 100, 1000])
def test_projected_order_holds_bitwise(dtype, num_classes):
    x, labels = random_directions(300, num_classes, seed=5)
    projected = project_safe_cone(x.clamp(-6e4, 6e4).to(dtype), labels)
    assert in_safe_cone(projected, labels).all()


def test_projection_leaves_safe_directions_alone_and_sends_polar_ones_to_zero():
    x, labels = random_directions(200, 9, seed=6)
    safe = project_safe_cone(x, labels)
    size = x.abs().amax(-1, keepdim=True)
    assert torch.allclose(project_safe_cone(safe, labels) / size, safe / size, atol=1e-15)
    polar = x - safe
    assert in_polar_cone(polar, labels, tolerance=1e-9).all()
    assert (project_safe_cone(polar, labels).abs() <= 1e-13 * size).all()
    assert ((safe * polar).sum(-1).abs() <= 1e-12 * size.squeeze(-1) ** 2).all()


def test_polar_cone_is_what_no_safe_direction_agrees_with():
    """The predicate against the definition g'x <= 0 for all x in the cone, by the cone's own generators."""
    generator = torch.Generator().manual_seed(11)
    g = torch.randn(400, 4, generator=generator, dtype=torch.float64)
    g[::2, 1:] = -g[::2, 1:].abs()
    g[::2, 0] = -g[::2, 1:].sum(-1)
    labels = torch.zeros(400, dtype=torch.long)
    one = torch.ones(4, dtype=torch.float64)
    generators = torch.cat([torch.stack([one, -one]), torch.eye(4, dtype=torch.float64)[1:]])
    by_definition = ((g @ generators.T) <= 1e-12).all(-1)
    assert torch.equal(in_polar_cone(g, labels), by_definition)
    assert 0.2 < by_definition.double().mean() < 0.8


def test_conditional_plane_meets_the_safe_cone_only_in_zero():
    """Section 5.1: a nonzero direction that only moves wrong classes must favour one of them."""
    student, teacher, labels = all_kinds(500, 20, seed=12)
    u = directions(student, teacher, labels).conditional
    nonzero = u.abs().amax(-1) > 1e-12
    assert in_conditional_plane(u[nonzero], labels[nonzero], tolerance=1e-9).all()
    assert nonzero.double().mean() > 0.8
    assert not in_safe_cone(u[nonzero], labels[nonzero]).any()
    zero = torch.zeros(2, 5)
    assert in_safe_cone(zero, torch.tensor([0, 3])).all()
    assert in_conditional_plane(zero, torch.tensor([0, 3])).all()


def test_threshold_of_an_already_safe_direction_is_its_label_coordinate():
    assert safe_threshold(torch.tensor(-2.0), torch.tensor([1.0, -1.0, 0.0])).item() == -2.0


def test_confidence_axis_is_safe_and_off_the_plane():
    axis = confidence_axis(torch.tensor([2]), 5, dtype=torch.float64)
    assert in_safe_cone(axis, torch.tensor([2])).all()
    assert not in_conditional_plane(axis, torch.tensor([2])).any()
    assert axis.sum().abs() < 1e-15


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_default_tolerances_fit_the_dtype(dtype):
    student, teacher, labels = make_pairs("random", 300, 20, seed=13, dtype=dtype)
    assert in_conditional_plane(directions(student, teacher, labels).pure_conditional, labels).all()
    student, teacher = blocked_pairs(student, teacher, labels)
    assert in_polar_cone(imitation_direction(student, teacher, labels), labels).all()
    off_plane = directions(student, teacher, labels).safe
    assert not in_conditional_plane(off_plane, labels).any()


SET_SIZES = [(4, 1), (4, 2), (7, 1), (7, 3), (7, 5), (20, 2), (20, 4), (40, 5)]


def random_set_directions(count, num_classes, num_correct, seed):
    """Directions of any kind, and a half that are 0 on the set with sum 0, as u is; masks of correct classes."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, num_classes, generator=generator, dtype=torch.float64)
    order = torch.rand(count, num_classes, generator=generator).argsort(-1)
    mask = torch.zeros(count, num_classes, dtype=torch.bool).scatter(-1, order[:, :num_correct], True)
    centred = x - (x.masked_fill(mask, 0.0).sum(-1, keepdim=True) / (num_classes - num_correct))
    x = torch.where(torch.arange(count).unsqueeze(-1) % 2 == 0, centred.masked_fill(mask, 0.0), x)
    scale = 10 ** (6 * torch.rand(count, 1, generator=generator, dtype=torch.float64) - 3)
    return x * scale, mask


@pytest.mark.parametrize("oracle", [oracles.project_set, oracles.project_set_by_bisection])
@pytest.mark.parametrize(("num_classes", "num_correct"), SET_SIZES)
def test_projection_for_sets_agrees_with_two_independent_solvers(num_classes, num_correct, oracle):
    """EXTENSIONS 1: NNLS on the generators e_y - e_j of every pair, and bisection of the threshold."""
    x, mask = random_set_directions(60, num_classes, num_correct, seed=num_classes)
    projected = project_safe_cone(x, mask)
    for i in range(60):
        size = x[i].abs().max().item()
        expected = oracle(x[i].numpy(), mask[i].numpy())
        np.testing.assert_allclose(projected[i], expected, rtol=0, atol=1e-12 * max(size, 1))
    assert in_safe_cone(projected, mask).all()


@pytest.mark.parametrize("num_correct", [1, 2, 5])
@pytest.mark.parametrize("num_classes", [100, 1000])
def test_projection_for_sets_of_many_classes(num_classes, num_correct):
    x, mask = random_set_directions(40, num_classes, num_correct, seed=num_correct)
    x = torch.where(torch.arange(40).unsqueeze(-1) % 3 == 0, x.round(), x)  # ties
    projected = project_safe_cone(x, mask)
    for i in range(40):
        expected = oracles.project_set_by_bisection(x[i].numpy(), mask[i].numpy())
        np.testing.assert_allclose(projected[i], expected, rtol=0, atol=1e-12 * max(x[i].abs().max().item(), 1))
    assert in_safe_cone(projected, mask).all()
