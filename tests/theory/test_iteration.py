"""Statements along simulated iterations, not only at one step."""

import math

import pytest
import torch

from strategies import all_kinds, make_pairs
from theory.checks import VIOLATIONS, inner, uniform_divergence
from tpkd.geometry import (
    coefficient_constant,
    conditional_loss,
    directions,
    general_step_limit,
    in_safe_set,
    label_loss,
    margins,
    named_direction,
    retention_bound,
    split,
)
from tpkd.theory import (
    average_component_residual_bound,
    average_joint_residual_bound,
    descent_certificate,
    general_descent_certificate,
    joint_potential,
    output_iteration,
    potential_gradient,
    residual_sum_bound,
    squared_residuals,
)

CLASSES = [3, 10, 100]
STEPS = [4 / 5, 1 / 20]
DESCENT = 1e-12  # rounding of the difference of two potentials of up to a few hundred


def starts(num_classes, count=20, seed=0):
    """Starts from certain to wrong and teachers from flat to sharp."""
    student, teacher, labels = make_pairs("random", count, num_classes, seed)
    return student.clamp(-20, 20), teacher.clamp(-4, 4), labels


def simulate(direction, student, step_size, num_steps):
    path = [student]
    for _ in range(num_steps):
        path.append(path[-1] - step_size * direction(path[-1]))
    return torch.stack(path)


def check_descent(path, teacher, labels, step_size):
    """eq:descentcertificate at every step, the residual sums and averages for every horizon, margins never falling."""
    num_classes = teacher.shape[-1]
    steps = len(path) - 1
    stacked = teacher.expand(path.shape), labels.expand(path.shape[:-1])
    gamma = retention_bound(num_classes)
    potential = joint_potential(path, *stacked)
    g, v = potential_gradient(path, *stacked), directions(path, *stacked).update
    certain = step_size * gamma / 4 * inner(g, g) + step_size * (1 - 5 * step_size / 4) * inner(v, v)
    assert (-potential.diff(dim=0) >= certain[:-1] - DESCENT).all()
    joint = inner(g, g)[:-1].cumsum(0)
    assert (joint <= residual_sum_bound(potential[0], step_size, num_classes)).all()
    residuals = squared_residuals(path, *stacked)
    component = (residuals.label + residuals.conditional / 12)[:-1].cumsum(0)
    for horizon in (1, 2, steps // 2, steps):
        bound = average_joint_residual_bound(potential[0], step_size, num_classes, horizon)
        assert (joint[horizon - 1] / horizon <= bound).all()
        bound = average_component_residual_bound(potential[0], step_size, num_classes, horizon)
        assert (component[horizon - 1] / horizon <= bound).all()
    assert (margins(path, stacked[1]).diff(dim=0) >= -1e-13).all()


def check_step_is_the_projected_one(path, teacher, labels, step_size):
    """The extra displacement over the label step is d / 2 with d safe and u - d orthogonal to it (Moreau)."""
    stacked = teacher.expand(path[:-1].shape), labels.expand(path.shape[0] - 1, *labels.shape)
    step = directions(path[:-1], *stacked)
    d = 2 * (-path.diff(dim=0) / step_size - step.label)
    assert (inner(step.conditional - d, d).abs() <= 1e-10).all()


def check_theorem_4_along(path, teacher, labels, step_size):
    check_descent(path, teacher, labels, step_size)
    check_step_is_the_projected_one(path, teacher, labels, step_size)


@pytest.mark.parametrize("step_size", STEPS)
@pytest.mark.parametrize("num_classes", CLASSES)
def test_descent_and_rates_along_the_iteration(num_classes, step_size):
    """eq:descentcertificate, eq:residual-rate, eq:average-joint-residual, eq:average-component-residual."""
    student, teacher, labels = starts(num_classes)
    path = output_iteration(student, teacher, labels, step_size=step_size, num_steps=300)
    assert path.shape == (301, 20, num_classes)
    check_theorem_4_along(path, teacher, labels, step_size)


@pytest.mark.parametrize("violation", VIOLATIONS)
@pytest.mark.parametrize("num_classes", CLASSES)
def test_descent_rejects_a_wrong_direction(num_classes, violation):
    """A violated projection does not pass the checks of theorem 4 along its own iteration."""
    student, teacher, labels = starts(num_classes)

    def wrong(z):
        return VIOLATIONS[violation](directions(z, teacher, labels), labels).update

    path = simulate(wrong, student, 4 / 5, 300)
    with pytest.raises(AssertionError):
        check_theorem_4_along(path, teacher, labels, 4 / 5)


@pytest.mark.parametrize(("num_classes", "num_steps", "close"), [(3, 1500, 5e-3), (10, 1500, 5e-3), (100, 2500, 4e-2)])
def test_both_kinds_of_learning_complete(num_classes, num_steps, close):
    """thm:convergence: p_y to 1, r to q and v to 0, from certain, ordinary and wrong starts."""
    student, teacher, labels = starts(num_classes, count=10, seed=1)
    teacher = teacher.clamp(-1.5, 1.5)
    z = student.clamp(-3, 3)
    for _ in range(num_steps):
        z = z - 4 / 5 * named_direction("tpkd", z, teacher, labels)
    step = directions(z, teacher, labels)
    assert (split(z, labels).log_confidence.exp() > 1 - close).all()
    assert (step.conditional.abs().sum(-1) < 2 * close).all()
    assert (step.update.norm(dim=-1) < 2 * close).all()
    assert (conditional_loss(z, teacher, labels) < close).all()


@pytest.mark.parametrize("num_classes", CLASSES)
def test_norm_inequalities_of_the_components(num_classes):
    """Appendix C.2: ||h||^2 <= ||g||^2 / 8 and ||u||^2 <= 6 ||g||^2."""
    residuals = squared_residuals(*all_kinds(500, num_classes, seed=2))
    slack = 1e-12 * residuals.joint + 1e-30
    assert (residuals.label <= residuals.joint / 8 + slack).all()
    assert (residuals.conditional <= 6 * residuals.joint + slack).all()


@pytest.mark.parametrize("step_size", STEPS)
@pytest.mark.parametrize("num_classes", CLASSES)
def test_descent_certificate_at_one_step(num_classes, step_size):
    """eq:descentcertificate on every kind of output."""
    student, teacher, labels = all_kinds(500, num_classes, seed=3)
    step = descent_certificate(student, teacher, labels, step_size)
    scale = 1e-15 * joint_potential(student, teacher, labels)
    assert (step.decrease >= step.certain - 10 * scale - 1e-14).all()
    assert (step.certain >= 0).all()


@pytest.mark.parametrize(
    "certificate",
    [
        lambda z, zt, y: descent_certificate(z, zt, y, 4 / 5),
        lambda z, zt, y: general_descent_certificate(z, zt, y, 0.02, label_weight=2.0, beta=1.0),
    ],
)
def test_what_a_step_gains_does_not_depend_on_a_common_shift(certificate):
    """In float32, with multiples of 1/64: a step from logits of 1e4 would be rounded to multiples of 1e-3."""
    student, teacher, labels = starts(10, count=100)
    student, teacher = ((z * 64).round().float() / 64 for z in (student, teacher))
    step, shifted = certificate(student, teacher, labels), certificate(student + 1e4, teacher - 1e4, labels)
    for name, value in vars(step).items():
        assert torch.equal(getattr(shifted, name), value), name


def test_descent_certificate_is_close_for_small_steps():
    """The certificate is not empty: in the tight direction of theorem 3 it is a fair share of the decrease."""
    student, teacher, labels = starts(3, count=200, seed=4)
    step = descent_certificate(student, teacher, labels, 1 / 20)
    share = (step.certain / step.decrease)[step.decrease > 1e-9]
    assert share.amax() > 0.5


COEFFICIENTS = [(4.0, 0.5), (1.0, 1.0), (0.6, 3.0), (20.0, 0.05)]


@pytest.mark.parametrize(("label_weight", "beta"), COEFFICIENTS)
@pytest.mark.parametrize("num_classes", CLASSES)
def test_general_coefficients_descend_along_the_iteration(num_classes, label_weight, beta):
    """eq:general-coefficient-condition, eq:general-coefficient-step, eq:general-coefficient-descent."""
    student, teacher, labels = starts(num_classes, seed=5)
    eta = general_step_limit(label_weight, beta, num_classes)
    steps = 150
    path = output_iteration(student, teacher, labels, step_size=eta, num_steps=steps, beta=beta)
    stacked = teacher.expand(path.shape), labels.expand(path.shape[:-1])
    potential = joint_potential(path, *stacked, label_weight=label_weight)
    residuals = squared_residuals(path, *stacked)
    both = residuals.label + residuals.conditional
    certain = eta * coefficient_constant(label_weight, beta, num_classes) / 2 * both
    assert (-potential.diff(dim=0) >= certain[:-1] - DESCENT * label_weight).all()
    record = general_descent_certificate(student, teacher, labels, eta, label_weight=label_weight, beta=beta)
    torch.testing.assert_close(record.decrease, -potential.diff(dim=0)[0], rtol=1e-9, atol=1e-12 * label_weight)
    torch.testing.assert_close(record.certain, certain[0])
    assert in_safe_set(
        path[1], student - eta * directions(student, teacher, labels).label, labels, tolerance=1e-13
    ).all()


def test_general_constant_is_the_least_eigenvalue():
    """Appendix C.5: c_{w,beta} is the least eigenvalue of [[w, -1/2], [-1/2, beta gamma]]."""
    for label_weight, beta in COEFFICIENTS:
        for num_classes in CLASSES:
            matrix = torch.tensor(
                [[label_weight, -0.5], [-0.5, beta * retention_bound(num_classes)]], dtype=torch.float64
            )
            least = torch.linalg.eigvalsh(matrix)[0].item()
            assert coefficient_constant(label_weight, beta, num_classes) == pytest.approx(least, rel=1e-10)


@pytest.mark.parametrize("num_classes", CLASSES)
def test_label_steps_make_relations_uniform_step_by_step(num_classes):
    """Appendix C.3: F = KL(nu || r), s = eta (1 - rho), and the decrease of every label step."""
    student, teacher, labels = starts(num_classes, seed=6)
    path = output_iteration(student, teacher, labels, step_size=1 / 20, num_steps=300, direction="ce")
    stacked = labels.expand(path.shape[:-1])
    divergence = uniform_divergence(path, stacked)
    s = split(path, stacked).log_residual.exp() / 20
    log_r = split(path, stacked).log_conditional
    n = num_classes - 1
    certain = s * (1 - s / 4) * (log_r.exp() - 1 / n).square().sum(-1)
    assert (-divergence.diff(dim=0) >= certain[:-1] - 1e-13).all()
    torch.testing.assert_close(divergence, -log_r.mean(-1) - math.log(n), rtol=1e-9, atol=1e-13)


def test_from_the_same_start_ce_ends_uniform_and_tpkd_at_the_teacher():
    """Appendix C.3 with K = 3: 1 - rho falls like 1 / k, so that the label step needs many steps to forget."""
    student = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.5]], dtype=torch.float64)
    teacher = torch.tensor([[0.0, 0.0, 0.7], [0.0, 1.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([0, 0])
    ce = tpkd = student
    for _ in range(15_000):
        ce = ce - 1 / 20 * ce.softmax(-1).sub(torch.tensor([1.0, 0.0, 0.0]))
    for _ in range(3000):
        tpkd = tpkd - 4 / 5 * named_direction("tpkd", tpkd, teacher, labels)
    for z in (ce, tpkd):
        assert (label_loss(z, labels) < 3e-3).all()
    assert (uniform_divergence(ce, labels) < 0.06 * uniform_divergence(student, labels)).all()
    assert (conditional_loss(tpkd, teacher, labels) < 1e-5).all()
    assert (conditional_loss(ce, teacher, labels) > 0.02).all()
    assert (uniform_divergence(tpkd, labels) > 0.02).all()


@pytest.mark.parametrize("num_classes", CLASSES)
def test_label_flow_in_effective_time_goes_to_uniform(num_classes):
    """Appendix C.3: in the time s the flow is da/ds = -(r - nu) whatever the confidence, and F goes to 0."""
    student, teacher, labels = starts(num_classes, seed=7)
    z = student.clamp(-2, 2)
    for _ in range(400):
        h = named_direction("ce", z, teacher, labels)
        residual = split(z, labels).log_residual.exp().unsqueeze(-1)
        z = z - num_classes / 20 * h / residual
        # The lead has no part in the flow of r; bound it, so that long effective times stay in range.
        z = z.scatter(-1, labels.unsqueeze(-1), z.amax(-1, keepdim=True).clamp(max=5))
        z = z - z.mean(-1, keepdim=True)
    assert (uniform_divergence(z, labels) < 1e-6).all()


def test_iteration_refuses_bad_settings():
    example = (torch.zeros(1, 3), torch.zeros(1, 3), torch.zeros(1, dtype=torch.long))
    with pytest.raises(ValueError, match="step_size: expected a positive finite number, got 0"):
        output_iteration(*example, step_size=0.0, num_steps=1)
    with pytest.raises(ValueError, match="num_steps: expected a nonnegative count, got -1"):
        output_iteration(*example, step_size=0.1, num_steps=-1)
    with pytest.raises(ValueError, match=r"step_size: expected a positive step up to 0.8, got 0.9"):
        descent_certificate(*example, 0.9)
    with pytest.raises(ValueError, match="num_steps: expected at least 1, got 0"):
        average_joint_residual_bound(torch.ones(1), 0.8, 3, 0)
    with pytest.raises(ValueError, match="expected 4 \\* label_weight \\* beta"):
        general_descent_certificate(*example, 0.1, label_weight=0.5, beta=0.1)


def test_iteration_takes_general_beta_and_named_directions():
    student, teacher, labels = starts(4, count=3, seed=8)
    path = output_iteration(student, teacher, labels, step_size=0.1, num_steps=2, direction="full-kl", beta=0.3)
    first = student - 0.1 * named_direction("full-kl", student, teacher, labels, beta=0.3)
    torch.testing.assert_close(path[1], first)
    torch.testing.assert_close(path[2], first - 0.1 * named_direction("full-kl", first, teacher, labels, beta=0.3))
    assert torch.equal(output_iteration(student, teacher, labels, step_size=0.1, num_steps=0), student.unsqueeze(0))
