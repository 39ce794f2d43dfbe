"""The rules of the verdicts, against numbers computed another way."""

import numpy as np
import pytest
from scipy import stats

from tpkd.compare.verdicts import (
    EQUAL,
    NOT_ASKED,
    NOT_SUPPORTED,
    SUPPORTED,
    UNDECIDED,
    AccuracyClaim,
    Measured,
    gains,
    holm,
    is_equal,
    judge_accuracy,
    judge_continuation,
    judge_growth,
    judge_remaining,
    measure,
)

ABOVE = AccuracyClaim("tpkd", "kd", "TPKD ends above KD")
LITTLE = AccuracyClaim("plain", "tpkd", "costs little", sign=-1, limit=0.005)


def test_p_values_and_intervals_are_those_of_the_t_test():
    values = np.random.default_rng(0).normal(0.3, 1.0, 12)
    found = measure(values.tolist())
    assert found.p_value() == pytest.approx(stats.ttest_1samp(values, 0).pvalue, rel=1e-9)
    assert found.p_value(0.5) == pytest.approx(stats.ttest_1samp(values, 0.5).pvalue, rel=1e-9)
    expected = stats.t.interval(0.9, 11, loc=values.mean(), scale=stats.sem(values))
    assert found.interval(0.9) == pytest.approx(expected, rel=1e-9)


def test_the_larger_error_decides():
    values = [0.01, 0.012, 0.011]
    assert measure(values, 0.5).error == 0.5
    assert measure(values, 0.0).error == measure(values).error > 0


def test_values_without_any_spread_decide_by_their_mean():
    assert measure([0.1] * 5).p_value() == 0.0
    assert measure([0.0] * 5).p_value() == 1.0
    assert measure([0.1]).p_value() == 1.0


def test_holm_never_exceeds_bonferroni_and_keeps_the_order():
    p = np.random.default_rng(1).uniform(0, 0.2, 9).tolist()
    adjusted = holm(p)
    assert sorted(range(9), key=lambda i: p[i]) == sorted(range(9), key=lambda i: (adjusted[i], p[i]))
    assert min(adjusted) == pytest.approx(9 * min(p))
    assert all(raw <= each <= min(1.0, 9 * raw) for raw, each in zip(p, adjusted, strict=True))
    # step by step: rejected at 5 % as Holm's procedure does, from the smallest on
    rank, rejected = 0, set()
    order = sorted(range(9), key=lambda i: p[i])
    while rank < 9 and p[order[rank]] <= 0.05 / (9 - rank):
        rejected.add(order[rank])
        rank += 1
    assert {i for i in range(9) if adjusted[i] <= 0.05} == rejected


@pytest.mark.parametrize(
    ("claim", "mean", "seeds", "adjusted", "asked", "verdict"),
    [
        (ABOVE, 0.01, 10, 0.049, True, SUPPORTED),
        (ABOVE, -0.01, 10, 0.049, True, NOT_SUPPORTED),
        (ABOVE, 0.01, 10, 0.051, True, UNDECIDED),
        (ABOVE, 0.01, 9, 0.001, True, "no verdict: 9 of 10 seeds"),
        (ABOVE, 0.01, 30, 0.001, False, NOT_ASKED),
        (ABOVE, 0.0001, 30, 0.9, True, EQUAL),
        (LITTLE, 0.001, 30, 0.01, True, SUPPORTED),
        (LITTLE, 0.01, 30, 0.01, True, NOT_SUPPORTED),
        (LITTLE, 0.0049, 30, 0.5, True, UNDECIDED),
    ],
)
def test_verdicts_about_accuracy(claim, mean, seeds, adjusted, asked, verdict):
    assert judge_accuracy(claim, Measured(mean, 0.0005, seeds), adjusted, asked=asked) == verdict


def test_equal_means_that_the_ninety_percent_interval_is_inside():
    quantile = stats.t.ppf(0.95, 29)
    assert is_equal(Measured(0.001, 0.00099 / quantile, 30))
    assert not is_equal(Measured(0.001, 0.00101 / quantile, 30))
    assert not is_equal(Measured(-0.001, 0.00101 / quantile, 30))


def test_a_gain_that_may_be_chance_is_not_a_gain():
    assert gains([0.51, 0.52, 0.53], [0.5] * 3) is False  # 2 points, and an interval of 2.5 on either side
    assert gains([0.51, 0.52, 0.53], [0.49, 0.5, 0.51]) is True  # by seed it is 2 points each time
    assert gains([0.51], [0.5]) is True
    assert gains([0.5], [0.5]) is False


def test_blocking_grows_by_more_than_a_point_or_not_at_all():
    spread = [-0.002, -0.001, 0.0, 0.001, 0.002]
    half = stats.t.ppf(0.975, 4) * stats.sem(spread)
    for middle, verdict in (
        (0.01 + 1.01 * half, SUPPORTED),
        (0.01 + 0.99 * half, UNDECIDED),
        (0.01 - 1.01 * half, NOT_SUPPORTED),
    ):
        assert judge_growth([middle + each for each in spread]) == verdict
    assert judge_growth([0.5] * 4) == "no verdict: 4 of 5 seeds"


def test_knowledge_remains_above_what_two_seeds_differ_by():
    assert judge_remaining([1.0, 1.1, 0.9, 1.0, 1.0], [0.5]) == SUPPORTED
    assert judge_remaining([1.0, 1.1, 0.9, 1.0, 1.0], [1.5, 2.5]) == NOT_SUPPORTED
    assert judge_remaining([1.0, 1.1, 0.9, 1.0, 1.0], [1.01]) == UNDECIDED
    assert judge_remaining([1.0] * 4, [0.5]) == "no verdict: 4 of 5 seeds"
    assert judge_remaining([1.0] * 5, []) == "no verdict: the noise floor was not measured"


def test_a_continuation_needs_both_losses():
    lower, higher, noise = (
        [-0.1, -0.11, -0.09, -0.1, -0.1] * 2,
        [0.01, 0.011, 0.012, 0.009, 0.01] * 2,
        [0.01, -0.01] * 5,
    )
    assert judge_continuation(lower, noise) == SUPPORTED
    assert judge_continuation(lower, lower) == SUPPORTED
    assert judge_continuation(lower, higher) == "not supported: the label loss ends higher"
    assert judge_continuation(higher, lower) == NOT_SUPPORTED
    assert judge_continuation(noise, lower) == UNDECIDED
    assert judge_continuation(lower[:9], lower[:9]) == "no verdict: 9 of 10 repeats"
