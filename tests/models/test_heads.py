import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import truncnorm
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tpkd.models.heads import fit_probe, random_head


def clusters(num_classes, dimension=6, rows=40, seed=0):
    """Features of very different scale and offset, one of them constant, around a centre for each class."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(num_classes).repeat(rows)
    centres = torch.randn(num_classes, dimension, generator=generator, dtype=torch.float64)
    x = centres[labels] + torch.randn(len(labels), dimension, generator=generator, dtype=torch.float64)
    x[:, 0] = 7.0
    return x * 10.0 ** torch.arange(-2, dimension - 2) + 3.0, labels


@pytest.mark.parametrize("C", [0.01, 1.0])
@pytest.mark.parametrize("num_classes", [3, 10])
def test_probe_is_the_decision_function_of_the_standardised_regression(num_classes, C):
    features, labels = clusters(num_classes)
    probe = fit_probe(features, labels, num_classes, C=C)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(C=C, max_iter=1000))
    expected = pipeline.fit(features.numpy(), labels.numpy()).decision_function(features.numpy())
    # folding the scaler reorders float64 sums of six terms that cancel from about 1e3
    np.testing.assert_allclose(probe(features).detach().numpy(), expected, atol=1e-11)
    single = fit_probe(features.float(), labels, num_classes, C=C)
    assert single.weight.dtype == torch.float32
    # the same in float32
    np.testing.assert_allclose(single(features.float()).detach().numpy(), expected, atol=2e-3)


def test_default_strength_is_the_papers():
    features, labels = clusters(3)
    assert torch.equal(fit_probe(features, labels, 3).weight, fit_probe(features, labels, 3, C=0.01).weight)


def test_probe_minimises_the_penalised_loss_by_an_independent_optimiser():
    features, labels = clusters(3, rows=20)
    x = ((features - features.mean(0)) / features.std(0, correction=0).where(features.std(0) > 0, 1.0)).numpy()
    y = labels.numpy()

    def objective(theta, C=0.01):
        A, b = theta[:-3].reshape(3, -1), theta[-3:]
        z = x @ A.T + b
        return C * (logsumexp(z, axis=1) - z[np.arange(len(y)), y]).sum() + (A**2).sum() / 2

    best = minimize(objective, np.zeros(3 * x.shape[1] + 3), method="BFGS", options={"gtol": 1e-8})
    A, b = best.x[:-3].reshape(3, -1), best.x[-3:]
    expected = x @ A.T + b
    found = fit_probe(features, labels, 3)(features).detach().numpy()
    # Only differences of logits are determined; the regression stops at a gradient of 1e-4.
    np.testing.assert_allclose(
        found - found.mean(1, keepdims=True), expected - expected.mean(1, keepdims=True), atol=2e-3
    )


def test_probe_of_two_classes_has_the_probabilities_of_the_regression():
    features, labels = clusters(2)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(C=0.01)).fit(features.numpy(), labels.numpy())
    probabilities = fit_probe(features, labels, 2)(features).softmax(-1)
    np.testing.assert_allclose(probabilities.detach(), pipeline.predict_proba(features.numpy()), atol=1e-11)


def without_variation(kind, rows, dtype):
    """A column that says nothing: far below the others, rounding around a number, or the same everywhere."""
    noise = torch.randn(rows, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    columns = {"tiny": 6e-33 * noise, "rounding": 1000 + torch.finfo(dtype).eps * 300 * noise, "same": 0 * noise + 0.1}
    return columns[kind]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_columns_without_variation_count_nothing(dtype):
    features, labels = clusters(3)
    plain = features.to(dtype)
    kinds = ("tiny", "rounding", "same")
    columns = [without_variation(kind, len(labels), dtype) for kind in kinds]
    probe = fit_probe(torch.cat([plain, torch.stack(columns, 1).to(dtype)], 1), labels, 3)
    assert not probe.weight[:, -len(kinds) :].any()
    expected = fit_probe(plain, labels, 3)
    # the optimiser sees three more zeros in every row
    torch.testing.assert_close(probe.weight[:, : -len(kinds)], expected.weight)
    torch.testing.assert_close(probe.bias, expected.bias)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_columns_beside_large_ones_still_count(dtype):
    labels = torch.arange(3).repeat(20)
    noise = torch.randn(60, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    features = torch.stack([1e3 * noise, 1e-6 * labels], 1).to(dtype)
    assert (fit_probe(features, labels, 3, C=100.0)(features).argmax(-1) == labels).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x[0], y), "features: expected a floating-point tensor"),
        (lambda x, y: (x.long(), y), "features: expected a floating-point tensor"),
        (lambda x, y: (x, y[:-1]), r"labels: expected shape \(120,\), got \(119,\)"),
        (lambda x, y: (x.index_fill(0, torch.tensor([3]), float("nan")), y), "features: expected finite numbers"),
        (lambda x, y: (x, y.where(y != 1, 0)), "labels: expected every class, got no row of 1"),
        (lambda x, y: (x, y + 1), "labels: expected classes 0 to 2, got 1 to 3"),
        (lambda x, y: (x, y - 1), "labels: expected classes 0 to 2, got -1 to 1"),
    ],
)
def test_probe_refuses_rows_that_do_not_fit(change, message):
    with pytest.raises(ValueError, match=message):
        fit_probe(*change(*clusters(3)), num_classes=3)


def test_random_head_is_truncated_normal_with_zero_bias():
    head = random_head(512, 300, seed=1)
    weights = head.weight.detach().double().flatten().numpy()
    assert np.abs(weights).max() <= 0.04
    assert head.bias.count_nonzero() == 0
    # quantiles of 153,600 draws are within six standard deviations (about 3e-4) of the truncated normal's
    grid = np.linspace(0.05, 0.95, 19)
    expected = truncnorm(-2, 2, scale=0.02).ppf(grid)
    np.testing.assert_allclose(np.quantile(weights, grid), expected, atol=6e-4)


def test_random_head_depends_on_its_seed_alone_and_leaves_the_global_state():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = random_head(8, 4, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    assert torch.equal(random_head(8, 4, seed=3).weight, first.weight)
    assert not torch.equal(random_head(8, 4, seed=4).weight, first.weight)
