"""XE-KL on the worked examples."""

from objectives.worked import ZT, Y, assert_worked
from tpkd.objectives import (
    xe_kl_loss,
)


def test_worked_examples():
    assert_worked(
        lambda z, **tail: xe_kl_loss(z, ZT, Y, **tail),
        [0.3720212956, 0.6842307266],
        [[-0.02689550, 0.07125897, -0.10839120, 0.06402773], [0.11519332, 0.13919136, -0.34019511, 0.08581044]],
    )


def test_double_softmax_of_the_release():
    assert_worked(
        lambda z, **tail: xe_kl_loss(z, ZT, Y, label_term="double-softmax", **tail),
        [0.6836657360, 0.7252720430],
        [[0.03251300, 0.03938277, -0.11595272, 0.04405695], [0.05121660, -0.01741886, -0.08006618, 0.04626844]],
    )
