import math

import numpy as np
import pytest
import torch

from parameter_space.networks import PrescribedJacobian, dense_jacobian, example, stacked_signals, tanh_network
from strategies import all_kinds, make_pairs
from tpkd.geometry import conditional_loss, label_loss, retention_bound
from tpkd.objectives import create
from tpkd.parameter_space import (
    PairCertificate,
    ParameterGradients,
    StepBound,
    certify,
    explicit_parameter_step,
    parameter_conclusions,
    parameter_gradients,
    parameter_shape_gain,
    steps,
)


def backpropagated(model, loss):
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])


@pytest.mark.parametrize("microbatch", [None, 4])
def test_gradients_are_those_that_the_losses_backpropagate(microbatch):
    inputs, teacher, labels = example(7, 6, seed=0)
    model = tanh_network(5, 6, seed=0)
    gradients = parameter_gradients(model, inputs, teacher, labels, microbatch=microbatch)
    losses = {
        "tpkd": lambda z: create("tpkd")(z, teacher, labels),
        "compensation": lambda z: create("compensation-only")(z, teacher, labels),
        "conditional": lambda z: conditional_loss(z, teacher, labels).mean(),
        "potential": lambda z: (4 * label_loss(z, labels) + conditional_loss(z, teacher, labels)).mean(),
    }
    for name, loss in losses.items():
        assert torch.allclose(getattr(gradients, name), backpropagated(model, loss(model(inputs))), atol=1e-13), name
    assert torch.allclose(gradients.increment, gradients.tpkd - gradients.compensation, atol=1e-15)


@pytest.mark.parametrize("num_classes", [4, 10])
def test_eq_parameter_conclusions_on_a_smooth_network(num_classes):
    """eq:parameter-conclusions: where the certificates pass, both inequalities are seen after the two steps."""
    seen = {"conditional": 0, "joint": 0}
    for seed in range(12):
        inputs, teacher, labels = example(6, num_classes, seed)
        model = tanh_network(5, num_classes, seed, hidden=64)
        certificate = certify(model, inputs, teacher, labels)
        conclusions = parameter_conclusions(model, inputs, teacher, labels, 1e-3, microbatch=4)
        if certificate.conditional.passes_measured:
            seen["conditional"] += 1
            assert conclusions.increment_norm > 0
            assert conclusions.conditional_loss < conclusions.compensation_conditional_loss
            assert conclusions.learns_beyond_compensation
        if certificate.joint.passes_measured:
            seen["joint"] += 1
            assert conclusions.potential < conclusions.initial_potential
            assert conclusions.descends
        # First order: the inner products are the rates at which the two gaps open, up to the curvature of the step.
        gap = conclusions.compensation_conditional_loss - conclusions.conditional_loss
        assert gap / 1e-3 == pytest.approx(certificate.conditional.inner_product, rel=2e-2)
        fall = conclusions.initial_potential - conclusions.potential
        assert fall / 1e-3 == pytest.approx(certificate.joint.inner_product, rel=2e-2)
    assert min(seen.values()) >= 3, seen


def test_eq_parameter_conclusions_are_those_of_two_hand_made_steps():
    """eq:parameter-conclusions, with the steps taken by a plain optimiser on copies of the network."""
    inputs, teacher, labels = example(6, 5, seed=3)
    conclusions = parameter_conclusions(tanh_network(5, 5, seed=3), inputs, teacher, labels, 0.05)
    ends = {}
    for name in ("tpkd", "compensation-only"):
        model = tanh_network(5, 5, seed=3)
        start = model(inputs)
        create(name)(start, teacher, labels).backward()
        torch.optim.SGD(model.parameters(), lr=0.05).step()
        ends[name] = model(inputs).detach()
    psi = {
        name: (4 * label_loss(z, labels) + conditional_loss(z, teacher, labels)).mean().item()
        for name, z in (("start", start.detach()), ("end", ends["tpkd"]))
    }
    after, control = (conditional_loss(z, teacher, labels).mean().item() for z in ends.values())
    assert conclusions.conditional_loss == pytest.approx(after, rel=1e-12)
    assert conclusions.compensation_conditional_loss == pytest.approx(control, rel=1e-12)
    assert conclusions.potential == pytest.approx(psi["end"], rel=1e-12)
    assert conclusions.initial_potential == pytest.approx(psi["start"], rel=1e-12)


@pytest.mark.parametrize("fault", ["the opposite direction", "compensation for TPKD"])
def test_eq_parameter_conclusions_fail_for_a_wrong_step(fault, monkeypatch):
    inputs, teacher, labels = example(6, 5, seed=1)
    model = tanh_network(5, 5, seed=1, hidden=64)
    assert parameter_conclusions(model, inputs, teacher, labels, 1e-3).learns_beyond_compensation
    true = steps.parameter_gradients

    def wrong(*args, **kwargs):
        g = true(*args, **kwargs)
        if fault == "the opposite direction":
            return ParameterGradients(-g.tpkd, -g.increment, g.conditional, g.potential)
        return ParameterGradients(g.compensation, 0 * g.increment, g.conditional, g.potential)

    monkeypatch.setattr(steps, "parameter_gradients", wrong)
    assert not parameter_conclusions(model, inputs, teacher, labels, 1e-3).learns_beyond_compensation


@pytest.mark.parametrize("num_classes", [3, 6, 20])
def test_eq_parameter_shape_gain_chain(num_classes):
    """eq:parameter-shape-gain: |dg|^2 >= m_c |R|^2 / 4 >= m_c gamma_K^2 |U|^2 / 4, against the dense increment."""
    for seed in range(10):
        inputs, teacher, labels = example(5, num_classes, seed)
        model = tanh_network(5, num_classes, seed, hidden=32)
        certificate = certify(model, inputs, teacher, labels).conditional
        logits, jacobian = dense_jacobian(model, inputs)
        gain = parameter_shape_gain(certificate.min_stretch, torch.from_numpy(logits), teacher, labels)
        s = stacked_signals(logits, teacher, labels)
        increment = np.einsum("x,xp->p", s["R"], jacobian.reshape(-1, jacobian.shape[-1])) / math.sqrt(5) / 2
        gamma = retention_bound(num_classes)
        assert gain.by_pure_conditional == pytest.approx(certificate.min_stretch * s["R"] @ s["R"] / 4, rel=1e-9)
        assert gain.by_conditional == pytest.approx(certificate.min_stretch * gamma**2 * s["U"] @ s["U"] / 4, rel=1e-9)
        assert increment @ increment >= gain.by_pure_conditional * (1 - 1e-9)
        # Equal for K = 3, up to rounding.
        assert gain.by_pure_conditional >= gain.by_conditional * (1 - 1e-12) > 0


def affine_network(seed, num_examples=5, num_classes=6, num_parameters=3):
    """A network whose curvature is known: Psi is 5/2 and L_cond 1/2 times the largest eigenvalue of J J^T smooth."""
    student, teacher, labels = make_pairs("random", num_examples, num_classes, seed)
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(num_examples * num_classes, num_parameters, generator=generator, dtype=torch.float64)
    largest = torch.linalg.matrix_norm(matrix, 2).item() ** 2 / num_examples
    return PrescribedJacobian(student, matrix), student, teacher, labels, largest


def test_eq_explicit_parameter_step_holds_up_to_its_limit():
    """eq:explicit-parameter-step: below mu / (8 M L) the step takes at least eta mu E / 2 from Psi."""
    certified = 0
    for seed in range(30):
        model, student, teacher, labels, largest = affine_network(seed)
        rows = torch.arange(5)
        joint = certify(model, rows, teacher, labels).joint
        if not joint.passes:
            with pytest.raises(
                ValueError, match="certificate: expected a joint certificate with distortion ratio below"
            ):
                explicit_parameter_step(joint, student, teacher, labels, lipschitz=1.0)
            continue
        certified += 1
        lipschitz = 2.5 * largest
        bound = explicit_parameter_step(joint, student, teacher, labels, lipschitz=lipschitz)
        s = stacked_signals(student.numpy(), teacher, labels)
        energy = s["h"] @ s["h"] + s["U"] @ s["U"] / 12
        root = math.sqrt(6 / 10)
        mu = ((1 + root) * joint.min_stretch - (1 - root) * joint.max_stretch) / 2
        assert bound.step_limit == pytest.approx(mu / (8 * joint.max_stretch * lipschitz), rel=1e-9)
        assert joint.inner_product >= mu * energy
        for share in (0.01, 0.5, 1.0, 3.0):
            eta = share * bound.step_limit
            seen = parameter_conclusions(model, rows, teacher, labels, eta)
            change = seen.potential - seen.initial_potential
            assert change <= -eta * mu * energy + 4 * lipschitz * joint.max_stretch * eta**2 * energy + 1e-14
            assert bound.change(eta) == pytest.approx(
                -eta * mu * energy + 4 * lipschitz * joint.max_stretch * eta**2 * energy, rel=1e-9
            )
            if share <= 1:
                assert change <= -eta * mu * energy / 2 + 1e-14
    assert 6 <= certified <= 24, certified


@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_the_inequalities_behind_eq_explicit_parameter_step(num_classes):
    """eq:explicit-parameter-step rests on W^T V >= E and |V|^2 <= 8 E, for every kind of output."""
    for seed in range(8):
        student, teacher, labels = all_kinds(20, num_classes, seed)
        for row in range(len(student)):
            s = stacked_signals(student[row : row + 1].numpy(), teacher[row : row + 1], labels[row : row + 1])
            energy = s["h"] @ s["h"] + s["U"] @ s["U"] / 12
            assert s["W"] @ s["V"] >= energy * (1 - 1e-9) - 1e-15
            assert s["V"] @ s["V"] <= 8 * energy * (1 + 1e-9) + 1e-15


def test_step_bound_is_best_at_its_limit():
    bound = StepBound(gain=3.0, curvature=7.0)
    grid = np.linspace(0, 1, 1001)
    assert grid[np.argmin([bound.change(eta) for eta in grid])] == pytest.approx(bound.step_limit, abs=1e-3)
    assert bound.change(bound.step_limit) == pytest.approx(-bound.gain * bound.step_limit / 2)


def test_a_student_with_nothing_left_to_learn_may_take_any_step():
    """Equal to its teacher and so certain that h is zero in float64: E = 0, and no step changes Psi."""
    logits, labels = torch.tensor([[900.0, 1.0, 0.0]], dtype=torch.float64), torch.tensor([0])
    pair = PairCertificate(1.0, 2.0, 2.0, 13.93, 0.9, 19.0, 1.0, True, True)
    bound = explicit_parameter_step(pair, logits, logits, labels, lipschitz=1.0)
    assert (bound.gain, bound.step_limit, bound.change(1e6)) == (0.0, math.inf, 0.0)


def test_bad_input_is_named():
    inputs, teacher, labels = example(3, 4, seed=0)
    model = tanh_network(5, 4, seed=0)
    for step_size in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="step_size: expected a positive finite number"):
            parameter_conclusions(model, inputs, teacher, labels, step_size)
    pair = PairCertificate(1.0, 1.0, 1.0, 9.0, 1.0, math.inf, 1.0, True, True)
    for lipschitz in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="lipschitz: expected a positive finite constant"):
            explicit_parameter_step(pair, teacher, teacher, labels, lipschitz=lipschitz)
    with pytest.raises(ValueError, match="min_stretch: expected a nonnegative finite number, got -1"):
        parameter_shape_gain(-1.0, teacher, teacher, labels)
