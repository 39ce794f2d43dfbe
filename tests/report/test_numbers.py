"""Numbers for people: never rounded to something that they are not, and `none` where there is none."""

import pytest

from tpkd.report.numbers import FORMATS, nats, plural, points, probability, share


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
