"""EXTENSIONS 3: every statement about the conditional direction at a temperature, against steps that are taken."""

import itertools

import pytest
import torch

import oracles
from strategies import all_kinds, direction_pair, make_pairs, make_sets
from theory.checks import check_theorem_3, check_theorem_4, inner, rounding
from tpkd.geometry import (
    conditional_loss,
    directions,
    general_step_limit,
    joint_cosine_bound,
    label_loss,
    margins,
    retention_bound,
    split,
)
from tpkd.theory import (
    alignment_expansion,
    average_component_residual_bound,
    batch_alignment,
    ce_interaction,
    compensation_bounds,
    descent_certificate,
    diagnose,
    extra_label_gain,
    extra_margin,
    fixed_length_optimum,
    general_descent_certificate,
    joint_alignment,
    joint_potential,
    local_clipped_gradient,
    local_clipped_loss,
    output_iteration,
    own_descent,
    own_step_limit,
    potential_gradient,
    quadratic_optimum,
    relation_ball_slack,
    removed_signal,
    residual_sum_bound,
    retention,
    squared_residuals,
)

TEMPERATURES = [0.5, 2.0, 4.0, 10.0]
of_every_temperature = pytest.mark.parametrize("T", TEMPERATURES)
of_every_size = pytest.mark.parametrize("num_classes", [3, 10, 100])


@of_every_size
@of_every_temperature
def test_theorems_3_and_4_hold_at_a_temperature(num_classes, T):
    student, teacher, labels = make_pairs("random", 300, num_classes, seed=1)
    step = directions(student, teacher, labels, temperature=T)
    check_theorem_3(step, labels)
    check_theorem_4(step, labels)
    kept = retention(student, teacher, labels, temperature=T)
    assert (kept.descent_share >= retention_bound(num_classes) - 1e-9).all()
    if num_classes > 3:  # with two incorrect classes every share is 3/4
        assert not torch.allclose(kept.descent_share, retention(student, teacher, labels).descent_share)
    assert (relation_ball_slack(student, teacher, labels, temperature=T) >= -1e-9).all()


@of_every_size
@of_every_temperature
def test_the_compensation_scales_with_the_temperature(num_classes, T):
    """T TV(q_T, r_T) / (K - 1) <= l <= T TV(q_T, r_T) / 2."""
    student, teacher, labels = make_pairs("random", 200, num_classes, seed=2)
    bounds = compensation_bounds(student, teacher, labels, temperature=T)
    r, q = (split(x / T, labels).log_conditional.exp() for x in (student, teacher))
    distance = T * (r - q).abs().sum(-1) / 2
    torch.testing.assert_close(bounds.upper, distance / 2, rtol=1e-9, atol=1e-14)
    torch.testing.assert_close(bounds.lower, distance / (num_classes - 1), rtol=1e-9, atol=1e-14)
    assert (bounds.lower <= bounds.compensation + 1e-12).all()
    assert (bounds.compensation <= bounds.upper + 1e-12).all()


@of_every_temperature
def test_the_bounds_of_the_compensation_are_attained(T):
    """One class asked for, at the even expense of the others; and the other way round."""
    for sign, end in ((-1.0, "upper"), (1.0, "lower")):
        difference = torch.full((7,), -sign * 1e-4 / 6, dtype=torch.float64)
        difference[0] = sign * 1e-4
        bounds = compensation_bounds(*direction_pair(difference, 1), temperature=T)
        assert bounds.compensation.item() == pytest.approx(getattr(bounds, end).item(), rel=1e-3)


@of_every_temperature
def test_the_removed_signal_is_exact(T):
    """eq:exact-removed, eq:active-removed."""
    removed = removed_signal(*make_pairs("random", 200, 12, seed=3), temperature=T)
    torch.testing.assert_close(removed.removed, removed.clipped, rtol=1e-9, atol=1e-13)
    assert (removed.lower <= removed.clipped * (1 + 1e-12) + 1e-15).all()
    assert (removed.clipped <= removed.upper * (1 + 1e-12) + 1e-15).all()


@of_every_temperature
def test_extra_margins_and_label_gains_are_those_of_steps_that_are_taken(T):
    """eq:extra-margin-bound, eq:extra-ce-bound with T TV(q_T, r_T) in the place of TV(q, r)."""
    student, teacher, labels = make_pairs("random", 200, 10, seed=4)
    step = directions(student, teacher, labels, beta=0.8, temperature=T)
    extra = extra_margin(student, teacher, labels, 0.7, beta=0.8, temperature=T)
    taken = margins(student - 0.7 * step.update, labels) - margins(student - 0.7 * step.label, labels)
    torch.testing.assert_close(extra.gain, taken, rtol=0, atol=1e-10)
    assert (extra.gain <= extra.bound.unsqueeze(-1) * (1 + 1e-12)).all()
    gain = extra_label_gain(student, teacher, labels, 0.7, beta=0.8, temperature=T)
    taken = label_loss(student - 0.7 * step.label, labels) - label_loss(student - 0.7 * step.update, labels)
    torch.testing.assert_close(gain.gain, taken, rtol=1e-9, atol=1e-9)
    chain = [torch.zeros_like(gain.gain), gain.gain, gain.first_order, gain.bound, gain.initial_bound]
    for low, high in itertools.pairwise(chain):
        assert (low <= high * (1 + 1e-9) + 1e-10).all()


@of_every_temperature
def test_the_joint_alignment_and_its_expansion(T):
    """eq:full-alignment, eq:alignment-expansion and eq:sector with u_T."""
    student, teacher, labels = make_pairs("random", 300, 10, seed=5)
    aligned = joint_alignment(student, teacher, labels, temperature=T)
    g = potential_gradient(student, teacher, labels, temperature=T)
    assert (aligned.inner_product >= aligned.lower_bound - rounding(inner(g, g))).all()
    assert (aligned.cosine >= retention_bound(10) ** 0.5 - 1e-9).all()
    parts = alignment_expansion(student, teacher, labels, temperature=T)
    terms = parts.label_term + parts.agreement_term + parts.polar_term + parts.kept_term + parts.removed_term
    assert ((parts.slack - terms).abs() <= 10 * rounding(inner(g, g))).all()
    for beta in (0.5, 1.0):
        batch = batch_alignment(student, teacher, labels, beta=beta, temperature=T)
        assert batch.inner_product >= batch.lower_bound > 0
        assert batch.cosine >= joint_cosine_bound(10, beta=beta)


@of_every_temperature
def test_the_potential_and_its_gradient_are_those_of_the_oracle(T):
    student, teacher, labels = make_pairs("random", 30, 7, seed=6)
    student = student.clamp(-8, 8)
    potential = joint_potential(student, teacher, labels, label_weight=3.0, temperature=T)
    gradient = potential_gradient(student, teacher, labels, label_weight=3.0, temperature=T)
    for i, y in enumerate(labels.tolist()):
        z, t = student[i].numpy(), teacher[i].numpy()

        def phi(x, t=t, y=y):
            return 3 * oracles.soft_label_loss(x, y) + oracles.soft_conditional_loss(x, t, y, T)

        assert potential[i].item() == pytest.approx(phi(z), rel=1e-10)
        torch.testing.assert_close(
            gradient[i], torch.from_numpy(oracles.finite_difference(phi, z)), rtol=0, atol=1e-6 * max(1, T)
        )


@of_every_temperature
def test_the_label_steps_interaction_is_that_of_the_predictions(T):
    """eq:ce-shape-interaction: (1 - rho) T (r_T - q_T)'r."""
    student, teacher, labels = make_pairs("random", 100, 9, seed=7)
    parts = split(student, labels)
    r_T, q_T = (split(x / T, labels).log_conditional.exp() for x in (student, teacher))
    expected = parts.log_residual.exp() * T * inner(r_T - q_T, parts.log_conditional.exp())
    torch.testing.assert_close(
        ce_interaction(student, teacher, labels, temperature=T), expected, rtol=1e-9, atol=1e-13 * T
    )


@of_every_temperature
def test_own_descent_and_certain_own_steps(T):
    """eq:own-shape-direction and eq:own-shape-condition for T^2 KL(q_T || r_T)."""
    student, teacher, labels = make_pairs("random", 300, 10, seed=8)
    lead = torch.linspace(-2, 6, 300, dtype=torch.float64).unsqueeze(-1)
    student = student.scatter(-1, labels.unsqueeze(-1), student.logsumexp(-1, keepdim=True) + lead)
    own = own_descent(student, teacher, labels, temperature=T)
    step = directions(student, teacher, labels, temperature=T)
    assert (own.rate >= own.lower_bound - rounding(inner(step.conditional, step.conditional))).all()
    limit = own_step_limit(student, teacher, labels, temperature=T)
    assert 0 < limit.certain.sum() < 300
    before = conditional_loss(student, teacher, labels, temperature=T)
    for share in (1e-3, 0.5, 0.99):
        moved = student - share * limit.step_limit.unsqueeze(-1) * step.update
        assert (conditional_loss(moved, teacher, labels, temperature=T) < before)[limit.certain].all()


@of_every_temperature
@of_every_size
@pytest.mark.parametrize("step_size", [0.05, 0.4, 0.8])
def test_the_descent_certificate_holds_at_every_temperature(num_classes, T, step_size):
    """eq:descentcertificate for Phi_T = 4 L_CE + T^2 KL(q_T || r_T)."""
    student, teacher, labels = all_kinds(400, num_classes, seed=9)
    student, teacher = student.clamp(-50, 50), teacher.clamp(-50, 50)
    found = descent_certificate(student, teacher, labels, step_size, temperature=T)
    potential = joint_potential(student, teacher, labels, temperature=T)
    assert (found.decrease >= found.certain - 1e-12 * (1 + potential)).all()


@of_every_temperature
def test_the_decrease_is_that_of_the_step(T):
    student, teacher, labels = make_pairs("random", 20, 8, seed=10)
    found = descent_certificate(student, teacher, labels, 0.8, temperature=T)
    for i, y in enumerate(labels.tolist()):
        z, t = student[i].numpy(), teacher[i].numpy()
        step = oracles.set_directions(z, t, y, temperature=T)
        before, after = (
            4 * oracles.soft_label_loss(x, y) + oracles.soft_conditional_loss(x, t, y, T)
            for x in (z, z - 0.8 * step["update"])
        )
        assert found.decrease[i].item() == pytest.approx(before - after, rel=1e-6, abs=1e-10)
        g = 4 * step["label"] + step["conditional"]
        assert found.certain[i].item() == pytest.approx(0.8 * retention_bound(8) / 4 * (g @ g), rel=1e-9)


def test_the_certificate_of_one_half_is_not_one_of_weight_one():
    """With v = h + d the bound of beta = 1/2 fails at a fair share of blocked states, at T = 1 and at T = 4."""
    student, teacher, labels = make_pairs("blocked", 1000, 10, seed=11)
    eta = 0.05

    def share_of_violations(beta, T):
        g = potential_gradient(student, teacher, labels, temperature=T)
        v = directions(student, teacher, labels, beta=beta, temperature=T).update
        before, after = (joint_potential(x, teacher, labels, temperature=T) for x in (student, student - eta * v))
        certain = eta * retention_bound(10) / 4 * inner(g, g) + eta * (1 - 5 / 4 * eta) * inner(v, v)
        return (before - after < certain - 1e-9).double().mean().item()

    for T in (1.0, 4.0):
        assert share_of_violations(0.5, T) == 0
        assert share_of_violations(1.0, T) > 0.05


@of_every_temperature
def test_other_weights_have_the_general_certificate(T):
    """eq:general-coefficient-descent with beta = 1 and w = 4, at the largest step that it allows."""
    student, teacher, labels = all_kinds(400, 10, seed=12)
    student, teacher = student.clamp(-50, 50), teacher.clamp(-50, 50)
    for beta, w in ((1.0, 4.0), (1.0, 1.0), (3.0, 4.0)):
        limit = general_step_limit(w, beta, 10)
        found = general_descent_certificate(student, teacher, labels, limit, label_weight=w, beta=beta, temperature=T)
        potential = joint_potential(student, teacher, labels, label_weight=w, temperature=T)
        assert (found.decrease >= found.certain - 1e-12 * (1 + potential)).all()
        assert (found.certain > 0).double().mean() > 0.9


@of_every_temperature
def test_the_iteration_completes_both_kinds_of_learning(T):
    """thm:convergence with u_T: p_y -> 1 and r -> q, and the residual rates of Phi_T on the way."""
    generator = torch.Generator().manual_seed(3)
    student, teacher = 0.7 * torch.randn(2, 6, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(5, (6,), generator=generator)
    steps = 1500
    path = output_iteration(student, teacher, labels, step_size=0.8, num_steps=steps, temperature=T)
    first = directions(student, teacher, labels, temperature=T).update
    torch.testing.assert_close(path[1], student - 0.8 * first)
    r, q = (split(x, labels).log_conditional.exp() for x in (path[-1], teacher))
    assert (r - q).abs().max() < 1e-2  # from 0.67; the step on the relations falls with that on the label
    assert label_loss(path[-1], labels).max() < 1e-3
    residuals = [squared_residuals(z, teacher, labels, temperature=T) for z in path[:steps]]
    joint = torch.stack([each.joint for each in residuals])
    start = joint_potential(student, teacher, labels, temperature=T)
    assert (joint.sum(0) <= residual_sum_bound(start, 0.8, 5)).all()
    parts = torch.stack([each.label + each.conditional / 12 for each in residuals]).mean(0)
    assert (parts <= average_component_residual_bound(start, 0.8, 5, steps)).all()
    for each in residuals[:50]:
        assert (each.label <= each.joint / 8 * (1 + 1e-12)).all()
        assert (each.conditional <= 6 * each.joint * (1 + 1e-12)).all()


@of_every_temperature
def test_the_local_loss_has_the_safe_direction_as_its_gradient(T):
    """eq:local-clipped-loss and eq:local-clipped-gradient at a temperature."""
    student, teacher, labels = make_pairs("random", 60, 7, seed=13)
    student = student.clamp(-20, 20)
    z = student.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(local_clipped_loss(z, student, teacher, labels, temperature=T).sum(), z)
    safe = directions(student, teacher, labels, temperature=T).safe
    torch.testing.assert_close(gradient, safe, rtol=0, atol=1e-11 * max(1, T))
    moved = (student + 0.3 * student.flip(0)).requires_grad_()
    (gradient,) = torch.autograd.grad(local_clipped_loss(moved, student, teacher, labels, temperature=T).sum(), moved)
    closed = local_clipped_gradient(moved.detach(), student, teacher, labels, temperature=T)
    torch.testing.assert_close(gradient, closed, rtol=0, atol=1e-11 * max(1, T))


@of_every_temperature
def test_local_optima_are_those_of_the_safe_direction(T):
    """eq:quadratic-optima, eq:fixed-budget-optimum; the guaranteed decrease is one of T^2 KL(q_T || r_T)."""
    student, teacher, labels = make_pairs("random", 100, 8, seed=14)
    step = directions(student, teacher, labels, temperature=T)
    best = quadratic_optimum(student, teacher, labels, temperature=T)
    torch.testing.assert_close(best.displacement, 2 * step.safe)
    before = conditional_loss(student, teacher, labels, temperature=T)
    after = conditional_loss(student - best.displacement, teacher, labels, temperature=T)
    assert (before - after >= best.progress - 1e-10 * (1 + before)).all()
    fixed = fixed_length_optimum(student, teacher, labels, 2.0, temperature=T)
    torch.testing.assert_close(fixed.progress, 2 * step.safe.norm(dim=-1))


@of_every_temperature
def test_a_diagnosis_depends_on_it_in_the_step_alone(T):
    student, teacher, labels = make_pairs("random", 100, 10, seed=15)
    found, usual = diagnose(student, teacher, labels, temperature=T), diagnose(student, teacher, labels)
    step = directions(student, teacher, labels, temperature=T)
    torch.testing.assert_close(found.compensation, step.compensation, rtol=1e-9, atol=1e-13)
    kept = retention(student, teacher, labels, temperature=T).descent_share
    torch.testing.assert_close(found.retention, kept, rtol=1e-9, atol=1e-9)
    cosine = joint_alignment(student, teacher, labels, temperature=T).cosine
    torch.testing.assert_close(found.update_cosine, cosine, rtol=1e-9, atol=1e-9)
    of_the_step = {"compensation", "retention", "update_cosine"}
    for name in found.names():
        same = torch.equal(getattr(found, name), getattr(usual, name))
        assert same == (name not in of_the_step), name


def test_sets_at_a_temperature_have_the_general_certificate():
    """EXTENSIONS 1 with 3: w = 4, beta = 1/2 and up to seven correct classes."""
    for T, m in itertools.product((1.0, 4.0), (2, 3, 5, 7)):
        student, teacher, labels = make_sets("random", 200, 20, m, seed=m)
        limit = general_step_limit(4.0, 0.5, 20, m)
        found = general_descent_certificate(student, teacher, labels, limit, label_weight=4.0, beta=0.5, temperature=T)
        assert (found.decrease >= found.certain - 1e-11 * (1 + found.decrease.abs())).all()


STATEMENTS = [
    *(retention, relation_ball_slack, removed_signal, compensation_bounds, joint_potential, potential_gradient),
    *(joint_alignment, batch_alignment, alignment_expansion, ce_interaction, own_descent, own_step_limit),
    *(squared_residuals, diagnose, quadratic_optimum),
]


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.__name__)
@pytest.mark.parametrize("temperature", [0.0, -1.0, float("inf"), float("nan")])
def test_a_temperature_that_is_none_is_refused(statement, temperature):
    with pytest.raises(ValueError, match="temperature: expected a positive finite number"):
        statement(*make_pairs("random", 2, 4, seed=0), temperature=temperature)
