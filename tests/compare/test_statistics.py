import math

import numpy as np
import pytest
from scipy import stats

from compare.cases import cell
from tpkd.compare.statistics import mean_interval, paired_difference, summarize_methods


@pytest.mark.parametrize(
    ("seeds", "level", "quantile"),
    [
        (2, 0.9, math.tan(0.9 * math.pi / 2)),  # one degree of freedom: the quantile of Cauchy's distribution
        (3, 0.95, 0.95 * math.sqrt(2 / (1 - 0.95**2))),  # two: a closed form
        (5, 0.95, 2.7764451),  # four, from a printed table
    ],
)
def test_the_interval_has_the_quantile_of_students_t(seeds, level, quantile):
    values = [float(value) for value in range(seeds)]
    low, high = mean_interval(values, level)
    assert (high - low) / 2 == pytest.approx(quantile * np.std(values, ddof=1) / math.sqrt(seeds), rel=1e-7)
    assert (high + low) / 2 == pytest.approx(np.mean(values))


def test_the_interval_is_that_of_a_t_test():
    values = [0.871, 0.879, 0.868, 0.873]
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert mean_interval(values) == pytest.approx((expected.low, expected.high))
    assert mean_interval([0.5]) is None


def test_differences_are_paired_by_seed_and_their_interval_is_that_of_a_paired_test():
    ours, theirs = {42: 0.9, 43: 0.8, 44: 0.85, 45: 0.1}, {41: 0.2, 42: 0.88, 43: 0.79, 44: 0.86}
    pair = paired_difference("kd", ours, theirs)
    assert pair.seeds == (42, 43, 44)
    test = stats.ttest_rel([ours[seed] for seed in pair.seeds], [theirs[seed] for seed in pair.seeds])
    interval = test.confidence_interval(0.95)
    assert (pair.low, pair.high) == pytest.approx((interval.low, interval.high))
    assert paired_difference("kd", {42: 0.9}, {43: 0.9}) is None


def test_summaries_use_the_sample_deviation_and_name_missing_seeds():
    """tab:application and tab:ablation state mean and sample standard deviation over the seeds."""
    accuracies = {42: 0.8737, 43: 0.8744, 44: 0.873}
    cells = [cell("tpkd", seed, accuracy) for seed, accuracy in accuracies.items()]
    cells += [cell("ce", 42, 0.87), cell("ce", 43, None), cell("kd", 42, None), cell("kd", 43, None)]
    tpkd, ce, kd = summarize_methods(cells, ("tpkd", "ce", "kd"))
    assert tpkd.mean == pytest.approx(np.mean(list(accuracies.values())))
    assert tpkd.standard_deviation == pytest.approx(np.std(list(accuracies.values()), ddof=1))
    assert [(pair.reference, pair.seeds) for pair in tpkd.versus] == [("ce", (42,))]
    assert tpkd.versus[0].low is None
    assert (ce.seeds, ce.missing_seeds, ce.mean, ce.standard_deviation) == ((42,), (43,), 0.87, None)
    assert (kd.mean, kd.missing_seeds, kd.versus) == (None, (42, 43), ())
    assert math.isclose(tpkd.low + tpkd.high, 2 * tpkd.mean)
