"""KL-Dist on the worked examples."""

from objectives.worked import KL_ROWS, ZT, assert_worked
from tpkd.objectives import (
    kl_dist_loss,
)


def test_worked_examples():
    assert_worked(
        lambda z, **tail: kl_dist_loss(z, ZT, **tail),
        [0.4016930087, 0.0811227815],
        KL_ROWS,
    )
