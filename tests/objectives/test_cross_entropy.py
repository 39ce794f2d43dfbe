"""Cross-entropy on the worked examples."""

from objectives.worked import Y, assert_worked
from tpkd.objectives import (
    cross_entropy_loss,
)


def test_worked_examples():
    assert_worked(
        lambda z, **tail: cross_entropy_loss(z, Y, **tail),
        [0.3423495824, 1.2873386717],
        [[-0.28990008, 0.15844471, 0.03535379, 0.09610157], [0.16740510, 0.45505423, -0.72399566, 0.10153632]],
    )
