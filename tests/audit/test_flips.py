"""Two students: counts by hand, tests against scipy, margins against loops."""

import numpy as np
import pytest
import torch
from scipy.stats import binom

from tpkd.audit.flips import MarginCount, compare_answers, mcnemar_p_value
from tpkd.quality.sampling import difference_interval

LABELS = np.array([0, 0, 1, 1, 2, 2, 2])
BEFORE = np.array([0, 0, 2, 0, 2, 0, 1])
AFTER = np.array([0, 1, 1, 0, 2, 1, 1])


@pytest.fixture
def flips():
    margins = np.arange(7.0), np.array([1.0, 0.0, 3.0, 3.0, 5.0, 5.5, 6.0])
    return compare_answers((0, 1), LABELS, (BEFORE, AFTER), margins, margins_lowered=0.25, num_classes=4)


def test_answers_are_counted(flips):
    assert (flips.kept, flips.lost, flips.won) == (2, 1, 1)
    assert (flips.missed_alike, flips.missed_differently) == (2, 1)
    assert flips.kept + flips.lost + flips.won + flips.missed_alike + flips.missed_differently == len(LABELS)
    assert flips.accuracy_change == 0


def test_classes_add_up_to_the_whole(flips):
    assert [each.examples for each in flips.classes] == [2, 2, 3, 0]
    for name in ("kept", "lost", "won"):
        assert sum(getattr(each, name) for each in flips.classes) == getattr(flips, name)
    assert sum(each.missed for each in flips.classes) == flips.missed_alike + flips.missed_differently
    assert flips.classes[3].margin_change is None
    assert flips.classes[0].margin_change == 0.0
    weighted = sum(each.examples * (each.margin_change or 0) for each in flips.classes) / len(LABELS)
    assert weighted == pytest.approx(flips.margin_change)


def test_margins_that_fell_are_counted(flips):
    assert flips.least_margins_lowered == 1
    assert flips.margins_lowered == 0.25
    assert flips.margin_change_low < flips.margin_change < flips.margin_change_high


def test_the_interval_of_accuracy_is_that_of_the_report(flips):
    moved = np.array([0.0, -1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    assert (flips.accuracy_low, flips.accuracy_high) == difference_interval(moved)


@pytest.mark.parametrize(("lost", "won"), [(0, 5), (3, 9), (40, 61), (500, 420), (7, 7)])
def test_mcnemar_is_twice_the_tail_of_a_fair_coin(lost, won):
    tail = min(1.0, 2 * binom.cdf(min(lost, won), lost + won, 0.5))
    assert mcnemar_p_value(lost, won) == pytest.approx(tail, rel=1e-9)
    assert mcnemar_p_value(lost, won) == mcnemar_p_value(won, lost)


def test_a_single_example_has_no_interval_of_margins():
    one = np.array([1])
    margins = np.array([0.5]), np.array([0.75])
    found = compare_answers((0, 1), one, (one, one), margins, margins_lowered=0.0, num_classes=3)
    assert (found.margin_change, found.margin_change_low, found.margin_change_high) == (0.25, None, None)


def test_lowered_margins_against_a_loop():
    generator = torch.Generator().manual_seed(1)
    before, after = torch.randn(2, 30, 5, generator=generator, dtype=torch.float64).unbind()
    labels, count = torch.randint(5, (30,), generator=generator), MarginCount()
    for part in (slice(0, 11), slice(11, 30)):
        count.add(before[part], after[part], labels[part])
    lowered = 0
    for row, label in enumerate(labels.tolist()):
        for other in set(range(5)) - {label}:
            lowered += bool(after[row, label] - after[row, other] < before[row, label] - before[row, other])
    assert count.share == lowered / (30 * 4)
