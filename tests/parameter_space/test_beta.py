"""Certificates and parameter steps at coefficients other than the paper's 1/2."""

import math

import numpy as np
import pytest
import torch

from parameter_space.networks import dense_jacobian, dense_pair, example, stacked_signals, tanh_network
from parameter_space.test_certificates import prescribed
from parameter_space.test_steps import affine_network, backpropagated
from strategies import make_pairs
from tpkd.geometry import (
    coefficient_constant,
    conditional_distortion_limit,
    conditional_loss,
    joint_cosine_bound,
    joint_distortion_limit,
    label_loss,
    retention_bound,
)
from tpkd.objectives import create
from tpkd.parameter_space import (
    angle_bound,
    certify,
    explicit_parameter_step,
    parameter_conclusions,
    parameter_gradients,
    parameter_shape_gain,
)

BETAS = [0.2, 1.0, 3.0]
of_every_beta = pytest.mark.parametrize("beta", BETAS)


@of_every_beta
def test_certificate_agrees_with_a_dense_jacobian(beta):
    """<J'U, beta J'R> and <J'W, J'V> with v = h + beta d; the limits are those of this coefficient."""
    inputs, teacher, labels = example(7, 10, seed=1)
    model = tanh_network(5, 10, seed=1)
    certificate = certify(model, inputs, teacher, labels, microbatch=3, beta=beta)
    logits, jacobian = dense_jacobian(model, inputs)
    s = stacked_signals(logits, teacher, labels, beta=beta)
    pairs = (
        (certificate.conditional, ("U", "R"), beta, conditional_distortion_limit(10)),
        (certificate.joint, ("W", "V"), 1.0, joint_distortion_limit(10, beta=beta)),
    )
    for pair, (first, second), weight, limit in pairs:
        truth = dense_pair(jacobian, s[first], s[second], weight)
        for name, expected in truth.items():
            np.testing.assert_allclose(getattr(pair, name), expected, rtol=1e-8, err_msg=name)
        assert pair.limit == limit
        assert pair.passes == (truth["distortion_ratio"] < limit)


@of_every_beta
def test_below_the_joint_limit_the_inner_product_is_positive(beta):
    passed = 0
    for seed in range(20):
        student, teacher, labels = make_pairs("random", 4, 10, seed)
        ratio = joint_distortion_limit(10, beta=beta) ** (2 * seed / 20)
        model, rows = prescribed(student, teacher, labels, ("potential", "update"), 1.0, ratio, beta=beta)
        joint = certify(model, rows, teacher, labels, beta=beta).joint
        assert not joint.passes or joint.passes_measured
        assert not joint.passes_measured or joint.inner_product > 0
        passed += joint.passes
    assert 5 <= passed <= 15


@of_every_beta
def test_gradients_are_those_that_the_losses_backpropagate(beta):
    inputs, teacher, labels = example(7, 6, seed=0)
    model = tanh_network(5, 6, seed=0)
    gradients = parameter_gradients(model, inputs, teacher, labels, beta=beta)
    losses = {
        "tpkd": lambda z: create("tpkd", beta=beta)(z, teacher, labels),
        "compensation": lambda z: create("compensation-only", beta=beta)(z, teacher, labels),
        "conditional": lambda z: conditional_loss(z, teacher, labels).mean(),
        "potential": lambda z: (4 * label_loss(z, labels) + conditional_loss(z, teacher, labels)).mean(),
    }
    for name, loss in losses.items():
        assert torch.allclose(getattr(gradients, name), backpropagated(model, loss(model(inputs))), atol=1e-13), name


@of_every_beta
def test_conclusions_open_at_the_certified_rates(beta):
    inputs, teacher, labels = example(6, 10, seed=2)
    model = tanh_network(5, 10, seed=2, hidden=64)
    certificate = certify(model, inputs, teacher, labels, beta=beta)
    seen = parameter_conclusions(model, inputs, teacher, labels, 1e-4, beta=beta)
    gap, fall = seen.compensation_conditional_loss - seen.conditional_loss, seen.initial_potential - seen.potential
    assert gap / 1e-4 == pytest.approx(certificate.conditional.inner_product, rel=2e-2)
    assert fall / 1e-4 == pytest.approx(certificate.joint.inner_product, rel=2e-2)


@of_every_beta
def test_shape_gain_grows_with_the_square_of_the_coefficient(beta):
    """eq:parameter-shape-gain: |dg|^2 >= m_c beta^2 |R|^2 >= m_c beta^2 gamma_K^2 |U|^2."""
    inputs, teacher, labels = example(5, 6, seed=3)
    model = tanh_network(5, 6, seed=3, hidden=32)
    certificate = certify(model, inputs, teacher, labels, beta=beta).conditional
    logits, _ = dense_jacobian(model, inputs)
    gain = parameter_shape_gain(certificate.min_stretch, torch.from_numpy(logits), teacher, labels, beta=beta)
    s, scale = stacked_signals(logits, teacher, labels), certificate.min_stretch * beta**2
    assert gain.by_pure_conditional == pytest.approx(scale * s["R"] @ s["R"], rel=1e-9)
    assert gain.by_conditional == pytest.approx(scale * retention_bound(6) ** 2 * s["U"] @ s["U"], rel=1e-9)
    increment = parameter_gradients(model, inputs, teacher, labels, beta=beta).increment
    assert (increment @ increment).item() >= gain.by_pure_conditional * (1 - 1e-9)


def test_explicit_step_holds_up_to_its_limit_at_another_coefficient():
    """With C.5 in place of C.1: change <= -eta mu c E + eta^2 L M C_beta E, E = mean(|h|^2 + |u|^2)."""
    certified, beta = 0, 1.0
    constant = coefficient_constant(4.0, beta, 6)
    for seed in range(60):
        model, student, teacher, labels, largest = affine_network(seed)
        rows = torch.arange(5)
        joint = certify(model, rows, teacher, labels, beta=beta).joint
        if not joint.passes:
            continue
        certified += 1
        bound = explicit_parameter_step(joint, student, teacher, labels, lipschitz=2.5 * largest, beta=beta)
        s = stacked_signals(student.numpy(), teacher, labels, beta=beta)
        energy = s["h"] @ s["h"] + s["U"] @ s["U"]
        mu = angle_bound(joint_cosine_bound(6, beta=beta), joint.min_stretch, joint.max_stretch)
        assert bound.gain == pytest.approx(mu * constant * energy, rel=1e-9)
        for share in (0.01, 1.0):
            eta = share * bound.step_limit
            seen = parameter_conclusions(model, rows, teacher, labels, eta, beta=beta)
            assert seen.potential - seen.initial_potential <= bound.change(eta) + 1e-14
    assert certified >= 1


@pytest.mark.parametrize("beta", [0.0, -1.0, math.nan])
def test_a_coefficient_at_which_nothing_is_claimed_is_refused(beta):
    """At 0 TPKD is cross-entropy, and its compensation alone is too: no step is better than the other."""
    inputs, teacher, labels = example(3, 4, seed=0)
    with pytest.raises(ValueError, match="beta: expected a positive finite weight"):
        certify(tanh_network(5, 4, seed=0), inputs, teacher, labels, beta=beta)
