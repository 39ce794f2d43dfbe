"""The KD term on the worked examples."""

from objectives.worked import ZT, Y, assert_worked
from tpkd.objectives import (
    kd_loss,
)


def test_worked_examples():
    assert_worked(
        lambda z, **tail: kd_loss(z, ZT, Y, ce_weight=0.0, **tail),
        [0.5107121340, 0.1365746661],
        [[0.22197960, 0.04054913, -0.39716616, 0.13463743], [0.04740549, -0.19012645, -0.02420211, 0.16692307]],
    )
