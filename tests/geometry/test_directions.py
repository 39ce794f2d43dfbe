import mpmath
import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import oracles
from strategies import (
    all_kinds,
    blocked_pairs,
    make_pairs,
    make_sets,
    one_negative_deviation,
    one_positive_deviation,
)
from theory.checks import total_variation
from tpkd.geometry import (
    clipped_teacher,
    conditional_loss,
    confidence_axis,
    directions,
    drop_target,
    imitation_direction,
    imitation_loss,
    in_conditional_plane,
    in_safe_cone,
    label_loss,
    margins,
    named_direction,
    normalized_clipped_teacher,
    project_safe_cone,
    split,
    weighted_label_loss,
)
from tpkd.geometry.directions import DIRECTION_NAMES
from tpkd.geometry.split import target_entry


@pytest.mark.parametrize(
    ("num_classes", "oracle"),
    [(3, oracles.project), (10, oracles.project), (100, oracles.project), (1000, oracles.project_by_bisection)],
)
def test_directions_agree_with_the_oracle(num_classes, oracle):
    """eq:core, and the parts of its safe direction."""
    student, teacher, labels = all_kinds(1000, num_classes, seed=num_classes)
    step = directions(student, teacher, labels)
    for i, y in enumerate(labels.tolist()):
        truth = oracles.directions(student[i].numpy(), teacher[i].numpy(), y, projection=oracle)
        for field, expected in truth.items():
            np.testing.assert_allclose(getattr(step, field)[i], expected, rtol=0, atol=1e-12, err_msg=f"{field} of {i}")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("num_classes", [3, 10, 100, 1000])
def test_safe_direction_is_protected_bitwise(dtype, num_classes):
    student, teacher, labels = all_kinds(500, num_classes, seed=1)
    step = directions(student.clamp(-6e4, 6e4).to(dtype), teacher.clamp(-6e4, 6e4).to(dtype), labels)
    assert step.safe.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert in_safe_cone(step.safe, labels).all()
    assert (step.compensation >= 0).all()
    assert (step.clipped_mass >= 0).all()


def test_label_and_conditional_directions_are_gradients():
    student, teacher, labels = make_pairs("random", 30, 6, seed=2)
    student.requires_grad_()
    step = directions(student.detach(), teacher, labels)
    (h,) = torch.autograd.grad(label_loss(student, labels).sum(), student)
    (u,) = torch.autograd.grad(conditional_loss(student, teacher, labels).sum(), student)
    (full,) = torch.autograd.grad(imitation_loss(student, teacher, labels).sum(), student)
    assert torch.allclose(h, step.label, atol=1e-14)
    assert torch.allclose(u, step.conditional, atol=1e-14)
    assert torch.allclose(full, imitation_direction(student.detach(), teacher, labels), atol=1e-14)


@pytest.mark.parametrize("step_size", [0.0, 1e-3, 0.5, 10.0, 1e3])
@pytest.mark.parametrize("beta", [0.0, 0.5, 3.0])
def test_marginorder(step_size, beta):
    """eq:marginorder: M(z - eta v) >= M(z - eta h) >= M(z), and every weighted label loss follows."""
    student, teacher, labels = all_kinds(1000, 15, seed=3)
    student = student.clamp(-50, 50)
    step = directions(student, teacher, labels, beta=beta)
    full, label_only = student - step_size * step.update, student - step_size * step.label
    slack = 1e-12 * max(1.0, step_size)
    assert (margins(full, labels) >= margins(label_only, labels) - slack).all()
    assert (margins(label_only, labels) >= margins(student, labels) - slack).all()
    generator = torch.Generator().manual_seed(0)
    for weights in (torch.ones(14, dtype=torch.float64), torch.rand(len(student), 14, generator=generator).double()):
        losses = [weighted_label_loss(z, labels, weights) for z in (full, label_only, student)]
        assert (losses[0] <= losses[1] + slack).all()
        assert (losses[1] <= losses[2] + slack).all()


def test_a_direction_without_protection_breaks_marginorder():
    student, teacher, labels = make_pairs("random", 400, 15, seed=3)
    step = directions(student, teacher, labels)
    unprotected, label_only = step.label + step.conditional / 2, step.label
    broken = (margins(student - unprotected, labels) < margins(student - label_only, labels) - 1e-9).any(-1)
    assert broken.all()


@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_update_is_the_nearest_direction_that_keeps_the_label_step(beta):
    """Appendix B.1: v minimises ||w - (h + beta u)|| over w - h in the safe cone, by a general solver."""
    student, teacher, labels = make_pairs("random", 12, 5, seed=4)
    step = directions(student, teacher, labels, beta=beta)
    for i, y in enumerate(labels.tolist()):
        h, wish = step.label[i].numpy(), (step.label + beta * step.conditional)[i].numpy()
        constraints = [
            {"type": "ineq", "fun": lambda w, j=j, h=h, y=y: (w - h)[j] - (w - h)[y]} for j in range(5) if j != y
        ]
        found = minimize(
            lambda w, wish=wish: ((w - wish) ** 2).sum(), h, constraints=constraints, method="SLSQP", tol=1e-14
        )
        np.testing.assert_allclose(step.update[i], found.x, atol=1e-6)
        assert ((step.update[i].numpy() - wish) ** 2).sum() <= found.fun + 1e-12


def test_clipped_core():
    """eq:clipped-core: q~ = min(q, r + l) sums to 1 - l, d = (-l, r - q~), and l < 1/2 solves its equation."""
    student, teacher, labels = all_kinds(1000, 25, seed=5)
    step, clipped = directions(student, teacher, labels), clipped_teacher(student, teacher, labels)
    r, q = split(student, labels).log_conditional.exp(), split(teacher, labels).log_conditional.exp()
    ell = step.compensation
    assert torch.allclose(clipped.sum(-1), 1 - ell, atol=1e-12)
    assert torch.allclose(drop_target(step.safe, labels), r - clipped, atol=1e-13)
    assert torch.equal(target_entry(step.safe, labels), -ell)
    assert torch.allclose(ell, (q - r - ell.unsqueeze(-1)).clamp(min=0).sum(-1), atol=1e-12)
    assert torch.allclose(drop_target(step.clipped_mass, labels).sum(-1), ell, atol=1e-12)
    assert (ell <= 0.5 + 1e-15).all()
    normalized = normalized_clipped_teacher(student, teacher, labels)
    assert torch.allclose(normalized, clipped / (1 - ell).unsqueeze(-1), atol=1e-12)


@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_compensation_lies_between_its_total_variation_bounds(num_classes):
    student, teacher, labels = all_kinds(1000, num_classes, seed=6)
    ell = directions(student, teacher, labels).compensation
    tv = total_variation(split(teacher, labels).log_conditional, split(student, labels).log_conditional)
    assert (ell >= tv / (num_classes - 1) - 1e-12).all()
    assert (ell <= tv / 2 + 1e-12).all()


@pytest.mark.parametrize("num_classes", [3, 10, 100])
@pytest.mark.parametrize("construction", [one_positive_deviation, one_negative_deviation])
def test_compensation_bounds_are_tight(num_classes, construction):
    case = construction(num_classes)
    step = directions(case.student, case.teacher, torch.tensor(case.label))
    tv = total_variation(
        split(case.teacher, torch.tensor(0)).log_conditional, split(case.student, torch.tensor(0)).log_conditional
    )
    assert tv.item() == pytest.approx(case.total_variation, rel=1e-9)
    assert step.compensation.item() == pytest.approx(case.compensation, rel=1e-9)


def test_pure_conditional_lies_in_the_plane_and_off_the_confidence_axis():
    student, teacher, labels = all_kinds(500, 12, seed=7)
    step = directions(student, teacher, labels)
    axis = confidence_axis(labels, 12, dtype=torch.float64)
    assert (
        in_conditional_plane(step.pure_conditional, labels, tolerance=1e-9)
        .logical_or(step.pure_conditional.abs().amax(-1) < 1e-12)
        .all()
    )
    assert ((step.pure_conditional * axis).sum(-1).abs() < 1e-13).all()
    assert torch.allclose(step.compensation.unsqueeze(-1) * axis + step.pure_conditional, step.safe, atol=1e-14)


def test_named_directions_are_their_formulas():
    student, teacher, labels = all_kinds(100, 8, seed=8)
    beta = 0.7
    step = directions(student, teacher, labels, beta=beta)
    h, u, d = step.label, step.conditional, step.safe
    full = imitation_direction(student, teacher, labels)
    axis = confidence_axis(labels, 8, dtype=torch.float64)
    expected = {
        "ce": h,
        "tpkd": h + beta * d,
        "tpkd-no-projection": h + beta * u,
        "tpkd-no-ce": beta * d,
        "safe-full-kl": h + beta * project_safe_cone(full, labels),
        "compensation-only": h + beta * step.compensation.unsqueeze(-1) * axis,
        "full-kl": h + full,
    }
    assert set(expected) == set(DIRECTION_NAMES)
    for name, direction in expected.items():
        found = named_direction(name, student, teacher, labels, beta=beta)
        assert torch.allclose(found, direction, atol=1e-15), name


def test_a_class_that_both_rule_out_counts_as_not_there():
    """Two classes more, the first and the last, that neither student nor teacher gives any probability."""
    student, teacher, labels = make_pairs("random", 100, 8, seed=11)
    nothing = torch.full((100, 1), -torch.inf, dtype=torch.float64)
    among_all = (*(torch.cat([nothing, z, nothing], dim=-1) for z in (student, teacher)), labels + 1)
    padding = torch.zeros(100, 1, dtype=torch.float64)

    def check(found, expected):
        torch.testing.assert_close(found, torch.cat([padding, expected, padding], dim=-1), rtol=1e-12, atol=1e-15)

    step, expected = directions(*among_all), directions(student, teacher, labels)
    for field in ("label", "conditional", "safe", "update", "clipped_mass", "pure_conditional"):
        check(getattr(step, field), getattr(expected, field))
    torch.testing.assert_close(step.compensation, expected.compensation)
    for name in DIRECTION_NAMES:
        check(named_direction(name, *among_all), named_direction(name, student, teacher, labels))


def test_without_ce_nothing_is_learned_once_the_conditional_is_matched():
    """Appendix A.5, first consequence."""
    student, _, labels = make_pairs("random", 50, 9, seed=9)
    teacher = student.scatter_add(-1, labels.unsqueeze(-1), torch.ones(50, 1, dtype=torch.float64))
    assert named_direction("tpkd-no-ce", student, teacher, labels).abs().max() < 1e-15
    assert (named_direction("tpkd", student, teacher, labels).abs().amax(-1) > 1e-9).all()


def test_safe_full_kl_loses_its_teacher_in_a_blocked_state_and_tpkd_does_not():
    """Appendix A.5, second consequence."""
    student, teacher, labels = make_pairs("random", 200, 9, seed=10)
    student, teacher = blocked_pairs(student, teacher, labels)
    step = directions(student, teacher, labels)
    projected = project_safe_cone(imitation_direction(student, teacher, labels), labels)
    assert projected.abs().max() < 1e-14
    assert (step.safe.norm(dim=-1) > 1e-3 * step.conditional.norm(dim=-1)).all()
    assert (step.conditional.norm(dim=-1) > 0).all()


def test_conditional_knowledge_survives_saturation():
    """A student that is certain to 1e-80 still gets the whole conditional direction."""
    student = torch.tensor([[200.0, 1.0, 0.0, -1.0]], dtype=torch.float64)
    teacher = torch.tensor([[300.0, -1.0, 0.0, 1.0]], dtype=torch.float64)
    step = directions(student, teacher, torch.tensor([0]))
    assert step.safe.norm() > 0.5
    assert -1e-80 < step.label[0, 0] < 0


@pytest.mark.parametrize("name", DIRECTION_NAMES)
def test_directions_of_a_nan_are_nan(name):
    """A zero would say that nothing is left to learn."""
    student, teacher = torch.tensor([[1.0, torch.nan, 0.0, 2.0]]), torch.zeros(1, 4)
    assert named_direction(name, student, teacher, torch.tensor([0])).isnan().all()


def test_unknown_name_and_negative_beta_are_refused():
    logits, labels = torch.zeros(1, 3), torch.tensor([0])
    with pytest.raises(ValueError, match=r"name: expected one of ce, tpkd, .* got 'kd'"):
        named_direction("kd", logits, logits, labels)
    for beta in (-0.5, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="beta: expected a nonnegative finite"):
            directions(logits, logits, labels, beta=beta)


def test_conditional_difference_keeps_its_proportions_when_one_class_holds_nearly_all_mass():
    """Against 60 digits: r and q round to the same one-hot vector, their difference is 1e-20 and sums to zero."""
    student = torch.tensor([[5.0, 46.0, 0.0, 1.0]], dtype=torch.float64)
    teacher = torch.tensor([[3.0, 48.0, 1.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([0])
    found = drop_target(directions(student, teacher, labels).conditional, labels)[0]
    with mpmath.workdps(60):
        r, q = ([mpmath.exp(x) for x in row[0, 1:].tolist()] for row in (student, teacher))
        truth = [a / mpmath.fsum(r) - b / mpmath.fsum(q) for a, b in zip(r, q, strict=True)]
    for value, exact in zip(found.tolist(), truth, strict=True):
        assert value == pytest.approx(float(exact), rel=1e-13)
    assert found.sum().abs() < 1e-15 * found.abs().max()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0, 4.0, 10.0])
@pytest.mark.parametrize("num_correct", [1, 2, 3, 5])
@pytest.mark.parametrize("num_classes", [8, 60])
def test_directions_of_sets_at_a_temperature_agree_with_the_oracle(num_classes, num_correct, temperature):
    """EXTENSIONS 1 and 3."""
    student, teacher, labels = make_sets("random", 40, num_classes, num_correct, seed=num_correct)
    step = directions(student, teacher, labels, beta=0.7, temperature=temperature)
    for i in range(40):
        truth = oracles.set_directions(student[i].numpy(), teacher[i].numpy(), labels[i].numpy(), 0.7, temperature)
        for field, expected in truth.items():
            np.testing.assert_allclose(
                getattr(step, field)[i], expected, rtol=0, atol=1e-12 * max(1, temperature), err_msg=f"{field} of {i}"
            )
    assert in_safe_cone(step.safe, labels).all()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("num_correct", [1, 3])
def test_soft_directions_are_gradients_at_a_temperature(num_correct, temperature):
    """u_T of T^2 KL(q_T || r_T), and h = p - s of the soft cross-entropy."""
    student, teacher, labels = make_sets("random", 30, 8, num_correct, seed=2)
    student.requires_grad_()
    step = directions(student.detach(), teacher, labels, temperature=temperature)
    (u,) = torch.autograd.grad(conditional_loss(student, teacher, labels, temperature=temperature).sum(), student)
    (h,) = torch.autograd.grad(label_loss(student, labels).sum(), student)
    torch.testing.assert_close(step.conditional, u, rtol=0, atol=1e-12 * max(1, temperature))
    torch.testing.assert_close(step.label, h, rtol=0, atol=1e-12)


def test_controls_of_sets_at_a_temperature_agree_with_the_oracle():
    student, teacher, labels = make_sets("random", 30, 9, 3, seed=6)
    T, beta = 3.0, 0.7
    found = {
        name: named_direction(name, student, teacher, labels, beta=beta, temperature=T) for name in DIRECTION_NAMES
    }
    for i in range(30):
        z, t, s = student[i].numpy(), teacher[i].numpy(), labels[i].numpy()
        step = oracles.set_directions(z, t, s, beta, T)
        everything = list(range(9))
        imitation = T * (oracles.softened(z, everything, T) - oracles.softened(t, everything, T))
        axis = np.where(s > 0, -1.0, 3 / 6)
        expected = {
            "ce": step["label"],
            "tpkd": step["update"],
            "tpkd-no-projection": step["label"] + beta * step["conditional"],
            "tpkd-no-ce": beta * step["safe"],
            "safe-full-kl": step["label"] + beta * oracles.project_set_by_bisection(imitation, s),
            "compensation-only": step["label"] + beta * step["compensation"] * axis,
            "full-kl": step["label"] + imitation,
        }
        assert set(expected) == set(DIRECTION_NAMES)
        for name, direction in expected.items():
            np.testing.assert_allclose(found[name][i], direction, rtol=0, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("inf"), float("nan")])
def test_a_temperature_that_is_none_is_refused(temperature):
    student, teacher, labels = make_pairs("random", 2, 4, seed=0)
    for function in (directions, conditional_loss, imitation_loss, imitation_direction):
        with pytest.raises(ValueError, match="temperature: expected a positive finite number"):
            function(student, teacher, labels, temperature=temperature)
