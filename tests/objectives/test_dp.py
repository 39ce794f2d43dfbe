"""The partitions on the worked examples."""

from dataclasses import replace

import torch

from objectives.cases import make_inputs
from objectives.worked import KL_ROWS, Z0, ZT, Y, assert_worked, double
from tpkd.objectives import (
    create,
    dp_loss,
    selects_teacher,
)


def test_unsupervised():
    assert_worked(
        lambda z, **tail: dp_loss(z, ZT, Z0, supervised=False, **tail),
        [1.1611492098, 0.0811227815],
        [[0.64423459, -0.64395930, -0.03051154, 0.03023624], KL_ROWS[1]],
    )


def test_supervised():
    assert_worked(
        lambda z, **tail: dp_loss(z, ZT, Z0, Y, supervised=True, **tail),
        [0.4016930087, 0.1939148820],
        [KL_ROWS[0], [-0.00747261, 0.28017653, -0.19936254, -0.07334138]],
    )


def test_worked_partition():
    assert selects_teacher(ZT, Z0).tolist() == [False, True]
    assert selects_teacher(ZT, Z0, Y).tolist() == [True, False]
    top = torch.stack([ZT.softmax(-1).amax(-1), Z0.softmax(-1).amax(-1)], -1)
    torch.testing.assert_close(top, double([[0.474, 0.802], [0.632, 0.475]]), atol=5e-4, rtol=0)
    at_label = torch.stack([ZT.softmax(-1)[[0, 1], Y], Z0.softmax(-1)[[0, 1], Y]], -1)
    torch.testing.assert_close(at_label, double([[0.474, 0.066], [0.232, 0.475]]), atol=5e-4, rtol=0)


def test_a_tie_goes_to_the_frozen_student():
    inputs = make_inputs()
    same = replace(inputs, initial=inputs.teacher)
    for name in ("dp-u", "dp-s"):
        assert create(name).metrics(same.batch())["teacher_selection_rate"] == 0
