"""Sums by group."""

import numpy as np
import pytest

from tpkd.diagnosis.tokens.totals import CONFIDENCES, FREQUENCIES, QUANTITIES, GroupSums, positions_of


def test_sums_over_many_blocks_are_those_over_one():
    draw = np.random.default_rng(0)
    groups, values = draw.integers(0, 3, 50), draw.normal(size=(len(QUANTITIES), 50))
    whole, parts = GroupSums(["a", "b", "c", "d"]), GroupSums(["a", "b", "c", "d"])
    whole.add(groups, values)
    for start in range(0, 50, 7):
        parts.add(groups[start : start + 7], values[:, start : start + 7])
    for one, other in zip(whole.groups(), parts.groups(), strict=True):
        assert one.means.tokens == other.means.tokens
        assert one.means.loss == (None if other.means.loss is None else pytest.approx(other.means.loss))
    assert whole.groups()[3].means.transfer_cost is None


@pytest.mark.parametrize("length", [1, 2, 3, 8, 255])
def test_every_place_has_a_group_whose_name_holds_it(length):
    groups = positions_of(length)
    for place, number in enumerate(groups.of(np.arange(1, length + 1)).tolist(), 1):
        first, *last = groups.names[number].split(" to ")
        assert int(first) <= place <= int(last[0] if last else first)
    assert groups.names[-1].endswith(str(length))


def test_edges_belong_to_the_group_above():
    assert FREQUENCIES.of(np.array([1, 2, 9, 10, 1000])).tolist() == [0, 1, 1, 2, 4]
    assert CONFIDENCES.of(np.array([0.0, 0.01, 0.9, 1.0])).tolist() == [0, 1, 4, 4]
