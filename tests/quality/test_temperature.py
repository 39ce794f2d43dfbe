"""The fitted temperature, against another minimiser."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from tpkd.quality.temperature import MOST, fit_temperature, losses_at


def case(seed=0, rows=300, classes=7, scale=2.0):
    random = np.random.default_rng(seed)
    labels = random.integers(classes, size=rows)
    logits = random.normal(size=(rows, classes)) * scale
    logits[np.arange(rows), labels] += scale / 2
    return logits, labels


@pytest.mark.parametrize("scale", [0.05, 2.0, 12.0])
def test_it_is_where_another_minimiser_finds_it(scale):
    logits, labels = case(scale=scale)

    def loss(log_temperature):
        return -log_softmax(logits / np.exp(log_temperature), axis=1)[np.arange(len(labels)), labels].mean()

    expected = minimize_scalar(loss, bounds=(-4.5, 4.5), method="bounded", options={"xatol": 1e-10})
    assert np.log(fit_temperature(logits, labels)) == pytest.approx(expected.x, abs=1e-5)


def test_logits_that_are_always_right_stay_within_the_bounds():
    logits, right = np.array([[5.0, 0.0], [0.0, 5.0]]), np.array([0, 1])
    sharp, blunt = fit_temperature(logits, right), fit_temperature(logits, 1 - right)
    assert 1 / MOST <= sharp < 0.2
    assert losses_at(logits, right, sharp).max() < 1e-12
    assert 0.5 * MOST < blunt <= MOST


def test_losses_are_those_of_divided_logits():
    logits, labels = case()
    expected = -log_softmax(logits / 3.5, axis=1)[np.arange(len(labels)), labels]
    np.testing.assert_allclose(losses_at(logits, labels, 3.5), expected, rtol=1e-12)
