"""Certificates and parameter steps at a temperature (EXTENSIONS 3), and their refusal of sets of correct classes."""

import numpy as np
import pytest
import torch

import oracles
from parameter_space.networks import dense_jacobian, dense_pair, example, tanh_network
from parameter_space.test_steps import backpropagated
from tpkd.geometry import (
    conditional_distortion_limit,
    conditional_loss,
    joint_distortion_limit,
    label_loss,
    retention_bound,
)
from tpkd.parameter_space import (
    certify,
    explicit_parameter_step,
    parameter_conclusions,
    parameter_gradients,
    parameter_shape_gain,
    stacked_conditional_alignment,
)

TEMPERATURES = [0.5, 4.0]
of_every_temperature = pytest.mark.parametrize("T", TEMPERATURES)


def stacked(logits, teacher, labels, T):
    """The signals of the oracle, stacked and divided by sqrt(N)."""
    rows = [
        oracles.set_directions(z, t, y, temperature=T)
        for z, t, y in zip(np.asarray(logits), teacher.numpy(), labels.tolist(), strict=True)
    ]
    scale = len(rows) ** -0.5
    fields = {"U": "conditional", "R": "pure_conditional", "V": "update"}
    found = {letter: scale * np.concatenate([row[name] for row in rows]) for letter, name in fields.items()}
    return found | {"W": scale * np.concatenate([4 * row["label"] + row["conditional"] for row in rows])}


@of_every_temperature
def test_certificate_agrees_with_a_dense_jacobian(T):
    """cor:kernel with u_T: the same limits, other signals."""
    inputs, teacher, labels = example(7, 10, seed=1)
    model = tanh_network(5, 10, seed=1)
    certificate = certify(model, inputs, teacher, labels, microbatch=3, temperature=T)
    logits, jacobian = dense_jacobian(model, inputs)
    s = stacked(logits, teacher, labels, T)
    pairs = (
        (certificate.conditional, ("U", "R"), 0.5, conditional_distortion_limit(10)),
        (certificate.joint, ("W", "V"), 1.0, joint_distortion_limit(10)),
    )
    for pair, (first, second), weight, limit in pairs:
        truth = dense_pair(jacobian, s[first], s[second], weight)
        for name, expected in truth.items():
            np.testing.assert_allclose(getattr(pair, name), expected, rtol=1e-7, err_msg=name)
        assert pair.limit == limit
        assert pair.passes == (truth["distortion_ratio"] < limit)
    assert certificate.joint.cosine != certify(model, inputs, teacher, labels).joint.cosine


@of_every_temperature
def test_gradients_are_those_that_the_losses_backpropagate(T):
    inputs, teacher, labels = example(7, 6, seed=0)
    model = tanh_network(5, 6, seed=0)
    gradients = parameter_gradients(model, inputs, teacher, labels, temperature=T)

    def conditional(z):
        return conditional_loss(z, teacher, labels, temperature=T).mean()

    losses = {
        "conditional": conditional,
        "potential": lambda z: 4 * label_loss(z, labels).mean() + conditional(z),
    }
    for name, loss in losses.items():
        assert torch.allclose(getattr(gradients, name), backpropagated(model, loss(model(inputs))), atol=1e-12), name


@of_every_temperature
def test_conclusions_open_at_the_certified_rates(T):
    """eq:parameter-conclusions for T^2 KL(q_T || r_T)."""
    inputs, teacher, labels = example(6, 10, seed=2)
    model = tanh_network(5, 10, seed=2, hidden=64)
    certificate = certify(model, inputs, teacher, labels, temperature=T)
    seen = parameter_conclusions(model, inputs, teacher, labels, 1e-4, temperature=T)
    gap, fall = seen.compensation_conditional_loss - seen.conditional_loss, seen.initial_potential - seen.potential
    assert gap / 1e-4 == pytest.approx(certificate.conditional.inner_product, rel=3e-2)
    assert fall / 1e-4 == pytest.approx(certificate.joint.inner_product, rel=3e-2)


@of_every_temperature
def test_stacked_bounds_hold(T):
    """eq:stacked-conditional-alignment, eq:parameter-shape-gain and eq:explicit-parameter-step."""
    inputs, teacher, labels = example(5, 6, seed=3)
    model = tanh_network(5, 6, seed=3, hidden=32)
    logits, _ = dense_jacobian(model, inputs)
    z, s = torch.from_numpy(logits), stacked(logits, teacher, labels, T)
    chain = stacked_conditional_alignment(z, teacher, labels, temperature=T)
    assert chain.alignment == pytest.approx((1 + retention_bound(6)) * s["U"] @ s["R"], rel=1e-9)
    assert chain.alignment * (1 + 1e-12) >= chain.squared_norms >= chain.norm_product > 0
    certificate = certify(model, inputs, teacher, labels, temperature=T)
    stretch = certificate.conditional.min_stretch
    gain = parameter_shape_gain(stretch, z, teacher, labels, temperature=T)
    increment = parameter_gradients(model, inputs, teacher, labels, temperature=T).increment
    assert (increment @ increment).item() >= gain.by_pure_conditional * (1 - 1e-9)
    assert gain.by_pure_conditional >= gain.by_conditional > 0
    bound = explicit_parameter_step(certificate.joint, z, teacher, labels, lipschitz=1.0, temperature=T)
    V = s["V"]
    assert bound.curvature * 2 >= certificate.joint.max_stretch * (V @ V)  # |g_T|^2 <= 8 M E
    assert bound.gain <= certificate.joint.inner_product  # W'GV >= mu E


def test_sets_of_several_classes_are_refused_by_name():
    inputs, teacher, labels = example(4, 6, seed=4)
    model = tanh_network(5, 6, seed=4)
    hot = torch.nn.functional.one_hot(labels, 6).double()
    assert certify(model, inputs, teacher, hot) == certify(model, inputs, teacher, labels)
    soft = (hot + hot.roll(1, -1)) / 2
    message = "labels: the .* of a parameter step is stated for one correct class, got 2 correct classes at row 0"
    logits = model(inputs).detach()
    pair = certify(model, inputs, teacher, labels).joint
    for call in (
        lambda: certify(model, inputs, teacher, soft),
        lambda: parameter_gradients(model, inputs, teacher, soft),
        lambda: parameter_conclusions(model, inputs, teacher, soft, 0.1),
        lambda: parameter_shape_gain(1.0, logits, teacher, soft),
        lambda: stacked_conditional_alignment(logits, teacher, soft),
        lambda: explicit_parameter_step(pair, logits, teacher, soft, lipschitz=1.0),
    ):
        with pytest.raises(ValueError, match=message):
            call()
