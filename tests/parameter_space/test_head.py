import numpy as np
import pytest
import torch

from strategies import all_kinds, make_pairs
from tpkd.geometry import conditional_loss, directions, label_loss, margins, split
from tpkd.parameter_space import absorb_bias, exact_head_update, factorize_features


def random_features(rows, width, seed, condition=10.0, dtype=torch.float64):
    """Features with singular values from 1 down to 1 / condition."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(rows, width, generator=generator, dtype=torch.float64)
    P, _, Qt = torch.linalg.svd(X, full_matrices=False)
    return (P * torch.logspace(0, -np.log10(condition), rows, dtype=torch.float64)) @ Qt.to(dtype)


@pytest.mark.parametrize("method", ["svd", "gram"])
@pytest.mark.parametrize(("rows", "width", "condition"), [(1, 1, 1.0), (8, 8, 5.0), (16, 40, 1e3), (64, 513, 1e2)])
def test_prop_exact_realises_the_step_with_least_norm(rows, width, condition, method):
    """prop:exact and eq:exact against NumPy's pseudoinverse and its least-squares solver."""
    X = random_features(rows, width, seed=rows, condition=condition)
    V = directions(*all_kinds(rows, 10, seed=3)).update[:rows]
    displacement = exact_head_update(X, V, 0.01, method=method)
    assert displacement.dtype == torch.float64
    # 1e-12 relative to the size of the answer: the condition number times 2e-16, with room for the sums.
    size = displacement.abs().max().item()
    np.testing.assert_allclose(
        displacement, -0.01 * np.linalg.pinv(X.numpy()) @ V.numpy(), atol=1e-12 * condition * size
    )
    least, *_ = np.linalg.lstsq(X.numpy(), -0.01 * V.numpy(), rcond=None)
    np.testing.assert_allclose(displacement, least, atol=1e-12 * condition * size)
    assert torch.allclose(X @ displacement, -0.01 * V, rtol=0, atol=1e-13)


def test_prop_exact_displacement_is_shorter_than_every_other_that_realises_the_step():
    """prop:exact: any H with X H = 0 adds its own squared norm."""
    X, V = random_features(6, 20, seed=1), directions(*make_pairs("random", 6, 5, seed=1)).update
    displacement = exact_head_update(X, V, 0.3)
    basis = torch.linalg.svd(X, full_matrices=True).Vh[6:]
    for seed in range(50):
        H = basis.mT @ torch.randn(14, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        assert torch.allclose(X @ (displacement + H), -0.3 * V, atol=1e-12)
        assert (displacement + H).square().sum() == pytest.approx((displacement.square() + H.square()).sum().item())


@pytest.mark.parametrize("condition", [1.0, 1e2, 1e4, 1e5])
def test_the_two_methods_agree_to_ten_digits(condition):
    X, V = random_features(32, 100, seed=2, condition=condition), directions(*all_kinds(32, 10, seed=2)).update[:32]
    by_svd, by_gram = (exact_head_update(X, V, 0.1, method=method) for method in ("svd", "gram"))
    assert (by_svd - by_gram).norm() <= 1e-10 * by_svd.norm()


def test_prop_exact_inherits_the_margin_and_loss_orderings_of_the_step():
    """prop:exact with eq:marginorder: no margin below the label step's, no conditional loss above it to first order."""
    student, teacher, labels = make_pairs("random", 32, 10, seed=4)
    X = absorb_bias(random_features(32, 64, seed=4))
    A = exact_head_update(X, student, -1.0)  # any head that gives the students; the step from 0 along -student is one
    head, step = factorize_features(X), directions(student, teacher, labels)
    after = X @ (A + head.update(step.update, 0.5))
    after_label = X @ (A + head.update(step.label, 0.5))
    assert (margins(after, labels) >= margins(after_label, labels) - 1e-12).all()
    assert (margins(after_label, labels) >= margins(X @ A, labels) - 1e-12).all()
    assert (label_loss(after, labels) <= label_loss(after_label, labels) + 1e-12).all()
    assert conditional_loss(after, teacher, labels).mean() < conditional_loss(after_label, teacher, labels).mean()


def test_repeated_realisation_on_fixed_features_follows_the_output_iteration_and_completes_both_kinds_of_learning():
    """Appendix D.1: with a reused factorisation every row follows z - eta v, so p_y -> 1 and r -> q."""
    student, teacher, labels = make_pairs("random", 6, 4, seed=7)
    X = absorb_bias(random_features(6, 9, seed=7))
    head, A, z = factorize_features(X), exact_head_update(X, student, -1.0), student.clone()
    left = [conditional_loss(z, teacher, labels)]
    for _ in range(2):
        for _ in range(1000):
            A = A + head.update(directions(X @ A, teacher, labels).update, 0.8)
            z = z - 0.8 * directions(z, teacher, labels).update
        left.append(conditional_loss(X @ A, teacher, labels))
    # Rounding of 2000 steps; the iteration contracts, so it does not grow.
    assert torch.allclose(X @ A, z, rtol=0, atol=1e-10)
    assert split(X @ A, labels).log_residual.exp().max() < 2e-3
    # The rate is that of the teacher's rarest class; the slowest row still halves in the second thousand steps.
    assert (left[2] < left[1]).all()
    assert left[2].max() < left[1].max() / 2
    assert left[2].max() < 2e-3 < 1e-2 * left[0].mean()


def test_absorbed_bias_is_that_of_a_linear_layer():
    torch.manual_seed(0)
    layer, features = torch.nn.Linear(7, 4, dtype=torch.float64), random_features(5, 7, seed=5)
    direction = torch.randn(5, 4, dtype=torch.float64)
    expected = layer(features) - 0.2 * direction
    displacement = exact_head_update(absorb_bias(features), direction, 0.2)
    with torch.no_grad():
        layer.weight += displacement[:-1].T
        layer.bias += displacement[-1]
    assert torch.allclose(layer(features), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("features", "direction", "expected"),
    [
        (torch.float32, torch.float32, torch.float32),
        (torch.float16, torch.float16, torch.float32),
        (torch.bfloat16, torch.float64, torch.float64),
        (torch.float32, torch.float64, torch.float64),
        (torch.float64, torch.float32, torch.float64),
    ],
)
def test_float64_inside_and_the_wider_input_dtype_outside(features, direction, expected):
    X = random_features(4, 8, seed=6, condition=2.0).to(features)
    V = directions(*make_pairs("random", 4, 5, seed=6)).update.to(direction)
    displacement = exact_head_update(X, V, 0.1)
    truth = -0.1 * np.linalg.pinv(X.double().numpy()) @ V.double().numpy()
    assert displacement.dtype == expected
    # One rounding to the returned dtype and no more: the sums inside are in float64.
    np.testing.assert_allclose(displacement.double(), truth, rtol=torch.finfo(expected).eps, atol=1e-14)


def test_nothing_leads_back_to_features_that_require_a_gradient():
    X = random_features(3, 5, seed=8).requires_grad_()
    assert not exact_head_update(X, torch.ones(3, 4, dtype=torch.float64), 0.1).requires_grad


@pytest.mark.parametrize("method", ["svd", "gram"])
def test_dependent_rows_are_refused_with_the_rank_found(method):
    X = random_features(6, 10, seed=9)
    direction = torch.zeros(6, 3, dtype=torch.float64)
    X[4] = X[0] - 2 * X[1]
    with pytest.raises(ValueError, match=r"features: expected full row rank 6, got rank 5 .*dependent rows"):
        exact_head_update(X, direction, 0.1, method=method)
    X[5] = X[3]
    with pytest.raises(ValueError, match="got rank 4"):
        exact_head_update(X, direction, 0.1, method=method)
    with pytest.raises(ValueError, match=r"expected full row rank 12, got rank 7 .*more rows than columns"):
        exact_head_update(random_features(7, 12, seed=9).T, torch.zeros(12, 3), 0.1, method=method)
    with pytest.raises(ValueError, match="got rank 0"):
        exact_head_update(torch.zeros(2, 3), torch.zeros(2, 3), 0.1, method=method)


@pytest.mark.parametrize("method", ["svd", "gram"])
def test_rows_that_depend_up_to_the_rounding_of_their_dtype_are_refused(method):
    X = random_features(4, 9, seed=10).float()
    X[3] = X[0] / 3 + X[1] / 7
    assert np.linalg.matrix_rank(X.double().numpy()) == 4
    with pytest.raises(ValueError, match="got rank 3"):
        exact_head_update(X, torch.zeros(4, 3), 0.1, method=method)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": torch.ones(3)}, r"features: expected .* shape \(N, D\).* got torch.float32 of shape \(3,\)"),
        ({"features": torch.ones(3, 4, dtype=torch.long)}, "features: expected a floating-point tensor"),
        ({"features": torch.ones(0, 4)}, r"not empty, got torch.float32 of shape \(0, 4\)"),
        ({"features": torch.full((1, 4), torch.nan)}, "features: expected finite numbers"),
        (
            {"direction": torch.zeros(3, 4)},
            r"direction: expected .* shape \(2, K\).* got torch.float32 of shape \(3, 4\)",
        ),
        ({"direction": torch.zeros(2)}, r"direction: expected .* shape \(2, K\)"),
        ({"direction": torch.zeros(2, 4, dtype=torch.int)}, "direction: expected a floating-point tensor"),
        ({"step_size": float("nan")}, "step_size: expected a finite number, got nan"),
        ({"method": "qr"}, "method: expected one of svd, gram, got 'qr'"),
    ],
)
def test_bad_input_is_named(change, message):
    given = {"features": torch.eye(2, 3), "direction": torch.zeros(2, 4), "step_size": 0.1, "method": "svd"} | change
    with pytest.raises(ValueError, match=message):
        exact_head_update(**given)


def test_absorb_bias_refuses_what_is_no_matrix():
    with pytest.raises(ValueError, match=r"features: expected shape \(N, D\), got \(3,\)"):
        absorb_bias(torch.ones(3))
