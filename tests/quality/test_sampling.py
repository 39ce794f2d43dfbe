"""Intervals over test samples against exact binomial probabilities, exact tests and resampling."""

import math

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from tpkd.quality.sampling import accuracy_interval, difference_interval, two_way_error


def answers(right, total):
    return np.array([1.0] * right + [0.0] * (total - right))


@pytest.mark.parametrize("total", [15, 40, 150])
def test_one_student_is_covered_as_often_as_the_level_says(total):
    """By the exact binomial probabilities of all outcomes; 0.934 is the least that Agresti and Coull's has at 95 %."""
    intervals = [accuracy_interval(answers(right, total)) for right in range(total + 1)]
    for accuracy in np.linspace(0.01, 0.99, 99):
        inside = [low <= accuracy <= high for low, high in intervals]
        covered = sum(binom.pmf(np.flatnonzero(inside), total, accuracy))
        assert covered >= 0.93, accuracy


@pytest.mark.parametrize(("right", "total"), [(70, 100), (190, 200), (9_100, 10_000)])
def test_one_student_is_close_to_the_exact_interval(right, total):
    exact = binomtest(right, total).proportion_ci(method="exact")
    low, high = accuracy_interval(answers(right, total))
    width = exact.high - exact.low
    assert low == pytest.approx(exact.low, abs=0.12 * width)  # the exact one is wider: it never covers too rarely
    assert high == pytest.approx(exact.high, abs=0.12 * width)


def test_an_accuracy_of_one_is_no_certainty():
    low, high = accuracy_interval(np.ones(50))
    assert (0.9 < low < 0.96, high) == (True, 1.0)


def seeds_that_agree(generator, students=3, total=4000):
    """Right answers of students that find the same samples hard."""
    chances = generator.beta(4, 1, size=total)
    return generator.random((students, total)) < chances


def test_a_mean_over_students_has_the_spread_of_resampled_test_sets():
    generator = np.random.default_rng(11)
    shares = seeds_that_agree(generator).mean(0)
    means = [generator.choice(shares, len(shares)).mean() for _ in range(4000)]
    low, high = accuracy_interval(shares)
    # 4,000 draws give a standard deviation to about 1 %; the additions shift the ends by less.
    assert high - low == pytest.approx(2 * 1.959964 * np.std(means), rel=0.05)
    assert (low + high) / 2 == pytest.approx(shares.mean(), abs=1e-3)


def test_three_equal_students_are_worth_one():
    once = answers(80, 100)
    assert accuracy_interval(np.mean([once, once, once], axis=0)) == pytest.approx(accuracy_interval(once))


@pytest.mark.parametrize("losses", [0, 1, 3])
def test_few_disagreements_decide_as_mcnemars_exact_test_does(losses):
    for wins in range(25):
        low, _ = difference_interval(np.array([1.0] * wins + [-1.0] * losses + [0.0] * (500 - wins - losses)))
        probability = binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
        # Between these the two may be one disagreement apart: the exact test is the more cautious one.
        if wins > losses and not 0.02 < probability < 0.06:
            assert (low > 0) == (probability < 0.05), (wins, losses)


def test_a_difference_has_the_spread_of_resampled_test_sets():
    generator = np.random.default_rng(13)
    differences = seeds_that_agree(generator).mean(0) - seeds_that_agree(generator).mean(0)
    means = [generator.choice(differences, len(differences)).mean() for _ in range(4000)]
    low, high = difference_interval(differences)
    assert high - low == pytest.approx(2 * 1.959964 * np.std(means), rel=0.05)
    assert (low + high) / 2 == pytest.approx(differences.mean(), abs=1e-3)


def test_equal_students_differ_by_nothing_that_can_be_told():
    low, high = difference_interval(np.zeros(100))
    assert low < 0 < high
    assert low == pytest.approx(-high)


def test_a_higher_level_is_wider():
    values = answers(30, 50)
    assert accuracy_interval(values, 0.99)[0] < accuracy_interval(values)[0]
    assert difference_interval(values, 0.99)[1] > difference_interval(values)[1]
    assert math.isclose(difference_interval(np.ones(2))[1], 1.0)


def test_the_error_over_seeds_and_samples_is_what_new_draws_of_both_show():
    """Seeds, samples and what belongs to neither are drawn again a thousand times."""
    random = np.random.default_rng(0)
    seeds, rows, draws = 6, 20, 1000
    found, means = [], []
    for _ in range(draws):
        values = (
            random.normal(size=(seeds, 1)) + 3 * random.normal(size=(1, rows)) + 2 * random.normal(size=(seeds, rows))
        )
        found.append(two_way_error(values) ** 2)
        means.append(values.mean())
    expected = 1 / 6 + 9 / 20 + 4 / 120
    assert np.var(means) == pytest.approx(expected, rel=0.2)  # five standard errors of a variance of 1,000 draws
    assert np.mean(found) == pytest.approx(expected, rel=0.1)


def test_the_error_over_both_is_never_below_that_over_seeds():
    random = np.random.default_rng(1)
    for _ in range(20):
        values = random.integers(-1, 2, size=(5, 30)).astype(float)
        assert two_way_error(values) >= values.mean(1).std(ddof=1) / np.sqrt(5) - 1e-15
