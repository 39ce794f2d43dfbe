import math

import numpy as np
import pytest
import torch
from torch import nn

from parameter_space.networks import (
    PrescribedJacobian,
    busy_network,
    dense_jacobian,
    dense_pair,
    example,
    stacked_signals,
    tanh_network,
)
from strategies import all_kinds, make_pairs, one_positive_deviation
from tpkd.geometry import alignment_bound, conditional_distortion_limit, joint_distortion_limit, retention_bound
from tpkd.parameter_space import (
    angle_bound,
    certificates,
    certify,
    stacked_conditional_alignment,
)
from tpkd.parameter_space.certificates import batch_signals
from tpkd.parameter_space.vjp import BatchJacobian


def assert_certificate_is_that_of_the_dense_jacobian(model, inputs, teacher, labels, rtol=1e-9, **settings):
    certificate = certify(model, inputs, teacher, labels, **settings)
    logits, jacobian = dense_jacobian(model, inputs)
    s = stacked_signals(logits, teacher, labels)
    num_classes = logits.shape[1]
    pairs = [
        (certificate.conditional, ("U", "R"), 0.5, conditional_distortion_limit(num_classes)),
        (certificate.joint, ("W", "V"), 1.0, joint_distortion_limit(num_classes)),
    ]
    for pair, (first, second), weight, limit in pairs:
        truth = dense_pair(jacobian, s[first], s[second], weight)
        # The inner product may cancel: its error is that of its two factors.
        size = weight * truth["max_stretch"] * np.linalg.norm(s[first]) * np.linalg.norm(s[second])
        for name, expected in truth.items():
            atol = rtol * size if name == "inner_product" else 0
            np.testing.assert_allclose(getattr(pair, name), expected, rtol=rtol, atol=atol, err_msg=name)
        assert pair.limit == limit
        assert pair.passes == (truth["distortion_ratio"] < limit)
        assert pair.passes_measured == (truth["distortion_ratio"] < truth["measured_limit"])
    return certificate


@pytest.mark.parametrize("microbatch", [None, 1, 3])
@pytest.mark.parametrize(("num_examples", "num_classes"), [(1, 3), (6, 3), (7, 10), (4, 20)])
def test_certificate_agrees_with_a_dense_jacobian(num_examples, num_classes, microbatch):
    """thm:parameter: every measured number against the full kernel and a generalised eigenvalue problem."""
    for seed in range(5):
        inputs, teacher, labels = example(num_examples, num_classes, seed)
        model = tanh_network(5, num_classes, seed)
        # 1e-9: one kernel of size N K and one 2 x 2 problem whose condition is at most a few hundred.
        assert_certificate_is_that_of_the_dense_jacobian(model, inputs, teacher, labels, microbatch=microbatch)


def test_certificate_of_a_network_with_batch_norm_and_dropout_is_that_of_its_eval_mode():
    model = busy_network(5).train()
    _, teacher, labels = example(6, 5, seed=0)
    inputs = torch.randn(6, 1, 5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert_certificate_is_that_of_the_dense_jacobian(model, inputs, teacher, labels, microbatch=4)
    assert model.training


def test_certificate_of_a_float32_network_has_float32_digits():
    inputs, teacher, labels = example(8, 10, seed=3)
    model = tanh_network(5, 10, seed=3, dtype=torch.float32)
    # Directions from float32 logits and products with float32 sums; the 2 x 2 problem magnifies them by its condition.
    assert_certificate_is_that_of_the_dense_jacobian(
        model, inputs.float(), teacher.float(), labels, rtol=1e-4, microbatch=3
    )


def test_limits_of_100_classes_are_those_printed():
    """eq:conditional-kernel-condition and the numbers below it, as a certificate reports them."""
    inputs, teacher, labels = example(3, 100, seed=0)
    certificate = certify(tanh_network(5, 100, seed=0), inputs, teacher, labels)
    assert round(certificate.conditional.limit, 6) == 34.957650
    assert round(certificate.joint.limit, 6) == 5.912499


def test_forward_says_where_the_logits_are():
    inputs, teacher, labels = example(6, 4, seed=1)
    model = tanh_network(5, 4, seed=1)

    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return {"logits": self.model(x)}

    wrapped = certify(Wrapped(), inputs, teacher, labels, forward=lambda model, x: model(x)["logits"], microbatch=4)
    assert wrapped == certify(model, inputs, teacher, labels, microbatch=4)


def without_last_row(c):
    return torch.cat([c[:, :-1], torch.zeros_like(c[:, -1:])], dim=1)


BROKEN = {
    "wrong scale": lambda products, c: 0.9 * products(c),
    "loses the last row": lambda products, c: products(without_last_row(c)),
    "loses a parameter": lambda products, c: products(c) * (torch.arange(products(c).shape[1]) > 0),
    "swaps two stacks": lambda products, c: products(c[[1, 0, 2, 3]]),
    "flips one sign": lambda products, c: products(c * torch.tensor([1.0, -1.0, 1.0, 1.0]).view(4, 1, 1)),
    "leaks into the next parameter": lambda products, c: products(c) + 1e-4 * products(c).roll(1, dims=1),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_product_does_not_pass_for_the_dense_jacobian(fault, monkeypatch):
    inputs, teacher, labels = example(6, 5, seed=2)
    model = tanh_network(5, 5, seed=2)
    assert_certificate_is_that_of_the_dense_jacobian(model, inputs, teacher, labels)

    class Broken(BatchJacobian):
        def grams(self, groups):
            products = BROKEN[fault](self.products, torch.cat(groups))
            return [p @ p.mT for p in products.split([len(group) for group in groups])]

    monkeypatch.setattr(certificates, "BatchJacobian", Broken)
    with pytest.raises(AssertionError):
        assert_certificate_is_that_of_the_dense_jacobian(model, inputs, teacher, labels)


def prescribed(student, teacher, labels, pair, min_stretch, max_stretch, turn=0.0, **settings):
    """A network at `student` whose J J^T stretches the sum of the unit signals by m and their difference by M.

    That is the case of equality in eq:actual-angle-bound; `turn` is an angle away from it, within the span.
    """
    signals = batch_signals(student, teacher, labels, **settings)
    a, b = (getattr(signals, name).flatten() for name in pair)
    a, b = a / a.norm(), b / b.norm()
    plus, minus = (a + b) / (a + b).norm(), (a - b) / (a - b).norm()
    plus, minus = (
        math.cos(turn) * plus + math.sin(turn) * minus,
        math.cos(turn) * minus - math.sin(turn) * plus,
    )
    root = math.sqrt(len(student))
    columns = [math.sqrt(min_stretch) * plus * root, math.sqrt(max_stretch) * minus * root]
    return PrescribedJacobian(student, torch.stack(columns, dim=1)), torch.arange(len(student))


PAIRS = {"conditional": ("conditional", "pure_conditional"), "joint": ("potential", "update")}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("num_classes", [4, 10, 100])
def test_the_measured_limit_of_eq_actual_angle_bound_is_exact_on_both_sides(name, num_classes):
    """eq:actual-angle-bound: just below (1 + c) / (1 - c) the worst network still gains, just above it loses."""
    for seed in range(5):
        student, teacher, labels = make_pairs("random", 4, num_classes, seed)
        reference = getattr(
            certify(*prescribed(student, teacher, labels, PAIRS[name], 1.0, 2.0), teacher, labels), name
        )
        for factor, certain in ((1 - 1e-6, True), (1 + 1e-6, False)):
            largest = factor * reference.measured_limit
            model, rows = prescribed(student, teacher, labels, PAIRS[name], 1.0, largest)
            pair = getattr(certify(model, rows, teacher, labels), name)
            assert pair.distortion_ratio == pytest.approx(largest, rel=1e-9)
            assert pair.passes_measured is certain
            assert (pair.inner_product > 0) is certain
            signals = batch_signals(student, teacher, labels)
            first, second = (getattr(signals, part).norm().item() for part in PAIRS[name])
            weight = 0.5 if name == "conditional" else 1.0
            bound = angle_bound(pair.cosine, pair.min_stretch, pair.max_stretch)
            # Equality; the difference of two nearly equal terms leaves 1e-9 of their size.
            assert pair.inner_product == pytest.approx(
                weight * bound * first * second, abs=1e-9 * first * second * largest
            )


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("num_classes", [4, 10, 100])
def test_thm_parameter_on_networks_of_which_about_half_are_certified(name, num_classes):
    """thm:parameter, cor:relation-backprop, cor:kernel: below the class-wide limit the inner product is positive."""
    count, passed, lost = 60, 0, 0
    for seed in range(count):
        # Certain students: there the joint cosine comes closest to its bound.
        student, teacher, labels = make_pairs("certain", 4, num_classes, seed)
        limit = {"conditional": conditional_distortion_limit, "joint": joint_distortion_limit}[name](num_classes)
        exponent, angle = torch.rand(2, generator=torch.Generator().manual_seed(seed)).tolist()
        ratio = limit ** (2.5 * exponent)
        model, rows = prescribed(student, teacher, labels, PAIRS[name], 1.0, ratio, turn=0.3 * angle)
        pair = getattr(certify(model, rows, teacher, labels), name)
        assert pair.distortion_ratio == pytest.approx(ratio, rel=1e-6)
        assert not pair.passes or pair.passes_measured  # the measured angle is never worse than the class-wide one
        assert not pair.passes_measured or pair.inner_product > 0
        passed += pair.passes
        lost += pair.inner_product < 0
    assert 0.2 * count <= passed <= 0.8 * count, passed
    assert lost > 0


@pytest.mark.parametrize("num_classes", [3, 5, 10, 100])
def test_measured_cosines_respect_the_class_wide_bounds(num_classes):
    """cor:relation-backprop and cor:kernel: cos(U, R) >= c_K and cos(W, V) >= sqrt(gamma_K), whatever the network."""
    for seed in range(10):
        student, teacher, labels = all_kinds(20, num_classes, seed)
        matrix = torch.eye(student.numel(), dtype=torch.float64)
        certificate = certify(PrescribedJacobian(student, matrix), torch.arange(len(student)), teacher, labels)
        assert certificate.conditional.cosine >= alignment_bound(num_classes) - 1e-12
        assert certificate.joint.cosine >= math.sqrt(retention_bound(num_classes)) - 1e-12
        for pair in (certificate.conditional, certificate.joint):
            # An identity Jacobian stretches nothing: J J^T = I / N.
            assert pair.max_stretch == pytest.approx(1 / len(student), rel=1e-9)
            assert pair.distortion_ratio == pytest.approx(1.0, rel=1e-9)
            assert pair.passes
            assert pair.passes_measured


@pytest.mark.parametrize("num_classes", [3, 4, 10, 100])
def test_eq_stacked_conditional_alignment_over_every_kind_of_batch(num_classes):
    """eq:stacked-conditional-alignment, against plain-NumPy signals; tight on the construction of appendix B."""
    for seed in range(8):
        student, teacher, labels = all_kinds(20, num_classes, seed)
        chain = stacked_conditional_alignment(student, teacher, labels)
        s = stacked_signals(student.numpy(), teacher, labels)
        gamma = num_classes / (2 * (num_classes - 1))
        norms = np.linalg.norm(s["U"]), np.linalg.norm(s["R"])
        assert chain.alignment == pytest.approx((1 + gamma) * s["U"] @ s["R"], rel=1e-10)
        assert chain.squared_norms == pytest.approx(gamma * norms[0] ** 2 + norms[1] ** 2, rel=1e-10)
        assert chain.norm_product == pytest.approx(2 * math.sqrt(gamma) * norms[0] * norms[1], rel=1e-10)
        assert chain.alignment >= chain.squared_norms - 1e-12
        assert chain.squared_norms >= chain.norm_product - 1e-12
    tight = one_positive_deviation(num_classes)
    pair = tight.student.unsqueeze(0), tight.teacher.unsqueeze(0), torch.tensor([tight.label])
    chain = stacked_conditional_alignment(*pair)
    assert chain.alignment == pytest.approx(chain.squared_norms, rel=1e-9)


def test_nothing_conditional_left_gives_no_conditional_certificate_and_a_dependent_joint_pair():
    inputs, _, labels = example(6, 5, seed=4)
    model = tanh_network(5, 5, seed=4)
    with torch.no_grad():
        student = model(inputs)
    for teacher in (student, student + 3.0, student.scatter_add(1, labels.unsqueeze(1), torch.ones(6, 1).double())):
        certificate = certify(model, inputs, teacher, labels)
        assert certificate.conditional is None
        # u = 0 leaves W = 4 h and V = h.
        assert certificate.joint.distortion_ratio == 1.0
        assert certificate.joint.cosine == pytest.approx(1.0, abs=1e-15)
        assert certificate.joint.measured_limit == math.inf
        assert certificate.joint.passes
        assert certificate.joint.passes_measured
        s = stacked_signals(student.numpy(), teacher, labels)
        J = dense_jacobian(model, inputs)[1].reshape(30, -1) / math.sqrt(6)
        assert certificate.joint.inner_product == pytest.approx(4 * np.square(J.T @ s["h"]).sum(), rel=1e-9)
        stretch = np.square(J.T @ s["h"]).sum() / np.square(s["h"]).sum()
        assert certificate.joint.min_stretch == certificate.joint.max_stretch == pytest.approx(stretch, rel=1e-9)


def test_with_two_incorrect_classes_the_conditional_pair_is_dependent():
    """K = 3: w_cond is 3/4 u in every example, so the pair of any batch is dependent and its ratio is 1."""
    inputs, teacher, labels = example(6, 3, seed=5)
    pair = certify(tanh_network(5, 3, seed=5), inputs, teacher, labels).conditional
    assert (pair.distortion_ratio, pair.measured_limit, pair.passes) == (1.0, math.inf, True)
    assert pair.min_stretch == pair.max_stretch > 0


def test_a_rank_tolerance_decides_what_is_dependent():
    inputs, teacher, labels = example(6, 5, seed=6)
    model = tanh_network(5, 5, seed=6)
    assert certify(model, inputs, teacher, labels).conditional.distortion_ratio > 1
    assert certify(model, inputs, teacher, labels, rank_tolerance=0.99).conditional.distortion_ratio == 1.0


def test_a_direction_the_network_loses_makes_the_ratio_infinite():
    student, teacher, labels = make_pairs("random", 4, 5, seed=8)
    for name, pair in PAIRS.items():
        for smallest, expected in ((0.0, math.inf), (1e-13, math.inf), (1e-9, 1e9)):
            model, rows = prescribed(student, teacher, labels, pair, smallest, 1.0)
            certificate = getattr(certify(model, rows, teacher, labels), name)
            assert certificate.distortion_ratio == pytest.approx(expected, rel=1e-4)
            assert not certificate.passes
            assert certificate.inner_product < 0
    dead = PrescribedJacobian(student, torch.zeros(20, 3, dtype=torch.float64))
    for certificate in vars(certify(dead, torch.arange(4), teacher, labels)).values():
        assert certificate.distortion_ratio == math.inf
        assert not certificate.passes
        assert not certificate.passes_measured
    equal = certify(dead, torch.arange(4), student, labels).joint
    assert equal.distortion_ratio == equal.measured_limit == math.inf
    assert not equal.passes_measured


def test_a_student_that_has_learned_everything_has_nothing_to_certify():
    student = torch.tensor([[2000.0, 1.0, 0.0]], dtype=torch.float64)
    model = PrescribedJacobian(student, torch.eye(3, dtype=torch.float64))
    certificate = certify(model, torch.arange(1), student, torch.tensor([0]))
    assert certificate.conditional is None
    assert certificate.joint is None


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_ratios_do_not_depend_on_the_scale_of_the_network(scale):
    student, teacher, labels = make_pairs("random", 4, 6, seed=9)
    matrix = torch.randn(24, 12, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    plain = certify(PrescribedJacobian(student, matrix), torch.arange(4), teacher, labels)
    scaled = certify(PrescribedJacobian(student, scale * matrix), torch.arange(4), teacher, labels)
    for name in PAIRS:
        first, second = getattr(plain, name), getattr(scaled, name)
        assert second.distortion_ratio == pytest.approx(first.distortion_ratio, rel=1e-9)
        assert second.max_stretch == pytest.approx(scale**2 * first.max_stretch, rel=1e-9)


def test_eq_actual_angle_bound_holds_for_any_pair_and_kernel():
    """eq:actual-angle-bound over random vectors and kernels of every rank."""
    generator = np.random.default_rng(0)
    for _ in range(500):
        size = int(generator.integers(2, 12))
        a, b = generator.normal(size=(2, size)) + generator.normal() * np.ones(size)
        J = generator.normal(size=(size, int(generator.integers(1, 15))))
        truth = dense_pair(J[None], a, b, 1.0)
        product = a @ J @ J.T @ b / (np.linalg.norm(a) * np.linalg.norm(b))
        bound = angle_bound(truth["cosine"], max(truth["min_stretch"], 0.0), truth["max_stretch"])
        assert product >= bound - 1e-9 * truth["max_stretch"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"teacher_logits": torch.zeros(4, 4)}, r"teacher_logits: expected the shape of student_logits \(4, 3\), got"),
        ({"teacher_logits": torch.full((4, 3), torch.nan)}, "teacher_logits: expected finite logits"),
        ({"inputs": torch.full((4, 2), torch.inf)}, "student_logits: expected finite logits"),
        ({"labels": torch.tensor([0, 1, 2, 3])}, "labels: expected class indices from 0 to 2, got 3"),
        ({"labels": torch.zeros(4)}, "labels: expected probabilities of the shape of the logits .* pass labels.long"),
        ({"labels": torch.tensor([[0.5, 0.5, 0.0]] * 4)}, "labels: expected at least 2 classes outside the support"),
        ({"model": nn.Linear(2, 2), "teacher_logits": torch.zeros(4, 2)}, "expected at least 3 classes, got 2"),
        ({"rank_tolerance": -1.0}, "rank_tolerance: expected a number from 0 to below 1, got -1.0"),
        ({"spectral_tolerance": 1.0}, "spectral_tolerance: expected a number from 0 to below 1, got 1.0"),
        ({"microbatch": -2}, "microbatch: expected a positive number of rows, got -2"),
    ],
)
def test_bad_input_is_named(change, message):
    given = {
        "model": nn.Linear(2, 3),
        "inputs": torch.zeros(4, 2),
        "teacher_logits": torch.ones(4, 3).cumsum(1),
        "labels": torch.zeros(4, dtype=torch.long),
    } | change
    with pytest.raises(ValueError, match=message):
        certify(**given)


def test_products_that_overflow_are_refused():
    student, teacher, labels = make_pairs("random", 2, 3, seed=0)
    model = PrescribedJacobian(student.float(), torch.full((6, 2), 3e38))
    with pytest.raises(ValueError, match="model: expected finite vector-Jacobian products"):
        certify(model, torch.arange(2), teacher, labels, forward=lambda model, rows: 10 * model(rows))


def test_angle_bound_refuses_what_is_no_angle_or_no_stretch():
    with pytest.raises(ValueError, match="cosine: expected a number from -1 to 1, got 2"):
        angle_bound(2.0, 1.0, 1.0)
    with pytest.raises(ValueError, match=r"expected 0 <= min <= max, got 2\.0 and 1\.0"):
        angle_bound(0.5, 2.0, 1.0)
