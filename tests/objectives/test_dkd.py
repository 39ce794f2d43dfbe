"""DKD and its two parts on the worked examples."""

from objectives.worked import ZT, Y, assert_worked
from tpkd.objectives import (
    dkd_loss,
)


def test_target_part():
    assert_worked(
        lambda z, **tail: dkd_loss(z, ZT, Y, ce_weight=0.0, beta=0.0, **tail),
        [0.1094495609, 0.0015016452],
    )


def test_non_target_part():
    assert_worked(
        lambda z, **tail: dkd_loss(z, ZT, Y, ce_weight=0.0, alpha=0.0, beta=1.0, **tail),
        [0.5781994979, 0.1849285841],
    )


def test_both_parts():
    assert_worked(
        lambda z, **tail: dkd_loss(z, ZT, Y, ce_weight=0.0, **tail),
        [4.7350455437, 1.4809303183],
        [[0.22197960, 1.37681475, -3.95336676, 2.35457241], [0.44315269, -2.18009465, -0.02420211, 1.76114408]],
    )


def test_non_target_part_at_unit_temperature():
    assert_worked(
        lambda z, **tail: dkd_loss(z, ZT, Y, ce_weight=0.0, alpha=0.0, beta=1.0, temperature=1.0, **tail),
        [0.5321229484, 0.0992617205],
        [[0, 0.21505043, -0.42459773, 0.20954731], [0.09518505, -0.19445533, 0, 0.09927027]],
    )
