"""The wider interval decides, and one seed never does."""

import pytest

from compare.owner.cases import records_of
from tpkd.compare.owner.record import Assessment, Estimate, Latency, NetworkCost, NetworksRecord

WIDE, NARROW = (-0.01, 0.05), (0.01, 0.03)


@pytest.mark.parametrize(
    ("seeds", "samples", "side"),
    [
        (NARROW, NARROW, 1),
        (WIDE, NARROW, 0),
        (NARROW, WIDE, 0),
        ((-0.3, -0.2), (-0.4, -0.1), -1),
        (NARROW, (None, None), 1),
        ((None, None), NARROW, 0),
        ((None, None), (None, None), 0),
        ((0.02, 0.02), (0.0, 0.04), 0),
    ],
)
def test_a_difference_is_decided_by_the_wider_interval(seeds, samples, side):
    assert Estimate(0.02, 3, *seeds, *samples).side == side


def test_the_wider_of_those_that_are_known():
    assert Estimate(0.02, 3, *WIDE, *NARROW).wider == WIDE
    assert Estimate(0.02, 3, *NARROW, *WIDE).wider == WIDE
    assert Estimate(0.02, 1, None, None, *NARROW).wider == NARROW
    assert Estimate(0.02, 1, None, None, None, None).wider is None


def test_records_read_back():
    found = records_of({"ce": 1.0, "kd": 1.5}, teacher=2.0, start=0.25).assessment
    assert Assessment.from_json(found.to_json()) == found
    cost = NetworkCost("builtin:mlp", "f", 10, 40, (Latency(1, 0.5, 3),))
    networks = NetworksRecord("cpu", 2, "fp32", cost, None)
    assert NetworksRecord.from_json(networks.to_json()) == networks
