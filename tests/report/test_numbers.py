"""Numbers for people: never rounded to something that they are not, and `none` where there is none."""

import pytest

from tpkd.report.numbers import (
    FORMATS,
    listed,
    megabytes,
    milliseconds,
    nats,
    nats_down,
    plural,
    points,
    probability,
    probability_down,
    share,
    share_down,
    share_up,
)


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_not_there_is_none_in_every_format(kind):
    assert FORMATS[kind](None) == "none"


def test_small_is_not_zero_and_nearly_is_not_all():
    assert [nats(0.0), nats(1e-9), nats(2_000_000.0)] == ["0.000", "<0.001", "2e+06"]
    assert [share(1e-9), share(1.0), share(1 - 1e-9)] == ["<0.1 %", "100.0 %", ">99.9 %"]
    assert [probability(1e-9), probability(1 - 1e-9), probability(1.0)] == ["<0.001", ">0.999", "1.000"]
    assert points(-0.00001) == "0.00"


def test_one_thing_is_singular():
    assert [plural(number, "seed") for number in (0, 1, 2)] == ["0 seeds", "1 seed", "2 seeds"]


@pytest.mark.parametrize("write", [nats_down, probability_down, share_down, share_up])
def test_a_bound_is_never_rounded_past_itself(write):
    for number in [0.0, 1.0, 0.34, 0.0004, 0.9996, 0.123456, *(index / 997 for index in range(997))]:
        shown = float(write(number).replace(" %", "")) / (100 if "share" in write.__name__ else 1)
        assert shown >= number - 1e-15 if write is share_up else shown <= number + 1e-15
        assert abs(shown - number) < 0.001


def test_large_bounds_keep_three_digits_and_their_direction():
    assert [nats_down(2_345_678.9), nats_down(9.999e30), nats(9.999e30)] == ["2.34e+06", "9.99e+30", "1e+31"]


def test_sizes_and_times_keep_their_leading_digits():
    assert [megabytes(size) for size in (40, 4_000, 123_456, 25_600_000, 1_400_000_000)] == [
        *("0.000040", "0.0040", "0.12"),
        *("25.6", "1,400"),
    ]
    assert [milliseconds(time) for time in (0.0, 0.000408, 0.999, 1.0, 99.94, 250.4)] == [
        *("0.0", "0.00041", "1.0", "1", "99.9", "250"),
    ]


def test_names_in_a_sentence():
    assert [listed(names) for names in (["a"], ["a", "b"], iter("abc"))] == ["a", "a and b", "a, b and c"]
