"""Every method on two worked examples, to all printed digits (float64, computed once by an independent program)."""

import pytest
import torch

from tpkd.geometry import directions
from tpkd.objectives import (
    AdamState,
    adam_step,
    amortised_gradient,
    binary_kl_loss,
    binary_kl_norm_loss,
    create,
    cross_entropy_loss,
    dkd_loss,
    dp_loss,
    effective_weights,
    kd_loss,
    kl_dist_loss,
    min_norm_weights,
    selects_teacher,
    tpkd_loss,
    xe_kl_loss,
)

VALUE = 5e-11  # half of the last printed digit
GRADIENT = 5.1e-9


def double(rows):
    return torch.tensor(rows, dtype=torch.float64)


Z = double([[2, 0.5, -1, 0], [0, 1, 0.5, -0.5]])
Y = torch.tensor([0, 2])
ZT = double([[1, 0, 0.5, -1], [0.2, 2, 1, -1]])
Z0 = double([[0, 2.5, 0, 0], [0, 0, 1, 0]])
A = double([[1.5, -0.5, 0, 0.5], [1, 0, 0.5, -2]])

KL_ROWS = [[0.23610908, -0.01592678, -0.25213619, 0.03195389], [0.06298153, -0.17667151, 0.04360543, 0.07008455]]

TABLE = {
    "ce": (
        lambda z, **tail: cross_entropy_loss(z, Y, **tail),
        [0.3423495824, 1.2873386717],
        [[-0.28990008, 0.15844471, 0.03535379, 0.09610157], [0.16740510, 0.45505423, -0.72399566, 0.10153632]],
    ),
    "kl": (
        lambda z, **tail: kl_dist_loss(z, ZT, **tail),
        [0.4016930087, 0.0811227815],
        KL_ROWS,
    ),
    "kd-term": (
        lambda z, **tail: kd_loss(z, ZT, Y, ce_weight=0.0, **tail),
        [0.5107121340, 0.1365746661],
        [[0.22197960, 0.04054913, -0.39716616, 0.13463743], [0.04740549, -0.19012645, -0.02420211, 0.16692307]],
    ),
    "tckd": (
        lambda z, **tail: dkd_loss(z, ZT, Y, ce_weight=0.0, beta=0.0, **tail),
        [0.1094495609, 0.0015016452],
        None,
    ),
    "nckd": (
        lambda z, **tail: dkd_loss(z, ZT, Y, ce_weight=0.0, alpha=0.0, beta=1.0, **tail),
        [0.5781994979, 0.1849285841],
        None,
    ),
    "dkd": (
        lambda z, **tail: dkd_loss(z, ZT, Y, ce_weight=0.0, **tail),
        [4.7350455437, 1.4809303183],
        [[0.22197960, 1.37681475, -3.95336676, 2.35457241], [0.44315269, -2.18009465, -0.02420211, 1.76114408]],
    ),
    "nckd-unit-temperature": (
        lambda z, **tail: dkd_loss(z, ZT, Y, ce_weight=0.0, alpha=0.0, beta=1.0, temperature=1.0, **tail),
        [0.5321229484, 0.0992617205],
        [[0, 0.21505043, -0.42459773, 0.20954731], [0.09518505, -0.19445533, 0, 0.09927027]],
    ),
    "dp-u": (
        lambda z, **tail: dp_loss(z, ZT, Z0, supervised=False, **tail),
        [1.1611492098, 0.0811227815],
        [[0.64423459, -0.64395930, -0.03051154, 0.03023624], KL_ROWS[1]],
    ),
    "dp-s": (
        lambda z, **tail: dp_loss(z, ZT, Z0, Y, supervised=True, **tail),
        [0.4016930087, 0.1939148820],
        [KL_ROWS[0], [-0.00747261, 0.28017653, -0.19936254, -0.07334138]],
    ),
    "xe-kl": (
        lambda z, **tail: xe_kl_loss(z, ZT, Y, **tail),
        [0.3720212956, 0.6842307266],
        [[-0.02689550, 0.07125897, -0.10839120, 0.06402773], [0.11519332, 0.13919136, -0.34019511, 0.08581044]],
    ),
    "xe-kl-double-softmax": (
        lambda z, **tail: xe_kl_loss(z, ZT, Y, label_term="double-softmax", **tail),
        [0.6836657360, 0.7252720430],
        [[0.03251300, 0.03938277, -0.11595272, 0.04405695], [0.05121660, -0.01741886, -0.08006618, 0.04626844]],
    ),
    "tpkd": (
        lambda z, **tail: tpkd_loss(z, ZT, Y, **tail),
        [0.3423495824 + 0.5321229484 / 2, 1.2873386717 + 0.0992617205 / 2],
        [[-0.39604951, 0.26596992, -0.07079564, 0.20087523], [0.21499762, 0.40644040, -0.77260949, 0.15117146]],
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_worked_example(name):
    loss, values, gradients = TABLE[name]
    z = Z.clone().requires_grad_()
    rows = loss(z, reduction="none")
    # TPKD's value is the sum of two printed ones.
    torch.testing.assert_close(rows.detach(), double(values), atol=2 * VALUE if name == "tpkd" else VALUE, rtol=0)
    if gradients is not None:
        rows.sum().backward()
        torch.testing.assert_close(z.grad, double(gradients), atol=GRADIENT, rtol=0)
    torch.testing.assert_close(loss(Z), rows.detach().mean(), atol=1e-15, rtol=0)


def test_worked_binary_kl():
    a = A.clone().requires_grad_()
    norm = binary_kl_norm_loss(a, ZT, reduction="none")
    torch.testing.assert_close(norm.detach(), double([0.3684021740, 0.7148184869]), atol=VALUE, rtol=0)
    norm.sum().backward()
    expected = [[0.124353, -0.124353, -0.124353, 0.35835740], [0.19737532, -0.46211716, -0.124353, -0.24491866]]
    torch.testing.assert_close(a.grad, double(expected), atol=5e-7, rtol=0)  # some are printed to six digits
    torch.testing.assert_close(a.grad[1, 1:2], double([-0.46211716]), atol=GRADIENT, rtol=0)
    plain = binary_kl_loss(A, ZT, reduction="none")
    torch.testing.assert_close(plain, double([0.3657209938, 0.6642601081]), atol=VALUE, rtol=0)


def test_worked_partition():
    assert selects_teacher(ZT, Z0).tolist() == [False, True]
    assert selects_teacher(ZT, Z0, Y).tolist() == [True, False]
    top = torch.stack([ZT.softmax(-1).amax(-1), Z0.softmax(-1).amax(-1)], -1)
    torch.testing.assert_close(top, double([[0.474, 0.802], [0.632, 0.475]]), atol=5e-4, rtol=0)
    at_label = torch.stack([ZT.softmax(-1)[[0, 1], Y], Z0.softmax(-1)[[0, 1], Y]], -1)
    torch.testing.assert_close(at_label, double([[0.474, 0.066], [0.232, 0.475]]), atol=5e-4, rtol=0)


def test_worked_retention():
    step = directions(Z, ZT, Y)
    retention = (step.conditional * step.safe).sum(-1) / step.conditional.square().sum(-1)
    torch.testing.assert_close(retention, double([0.66668533, 0.66671570]), atol=GRADIENT, rtol=0)


def test_worked_controls():
    """The controls stand on the same examples: their parts are printed for CE, KL and NCKD."""
    ce, kl, nckd = (double(TABLE[name][1]) for name in ("ce", "kl", "nckd-unit-temperature"))
    values = {
        "tpkd-no-projection": ce + nckd / 2,
        "tpkd-no-ce": nckd / 2,
        "safe-full-kl": ce + kl / 2,
        "compensation-only": ce,
    }
    for name, expected in values.items():
        found = create(name)(Z, ZT, Y, reduction="none")
        torch.testing.assert_close(found, expected, atol=2 * VALUE, rtol=0)


def test_worked_min_norm_weights():
    gradients = double([[1, 2, 0], [2, -1, 1]])
    gram = gradients @ gradients.T
    assert gram.tolist() == [[5, 0], [0, 6]]
    weights = min_norm_weights(gradients)
    torch.testing.assert_close(weights, double([6 / 11, 5 / 11]), atol=1e-15, rtol=0)
    torch.testing.assert_close(weights @ gradients, double([16 / 11, 7 / 11, 5 / 11]), atol=1e-15, rtol=0)


def test_worked_amortised_step():
    before, after, w = double([1.2, 0.8]), double([1.1, 0.79]), torch.zeros(2, dtype=torch.float64)
    torch.testing.assert_close(effective_weights(w.softmax(0), before), double([0.4, 0.6]), atol=1e-8, rtol=0)
    delta = before.log() - after.log()
    torch.testing.assert_close(delta, double([0.08701138, 0.01257878]), atol=GRADIENT, rtol=0)
    gradient = amortised_gradient(w, before, after)
    torch.testing.assert_close(gradient, double([0.01860815, -0.01860815]), atol=GRADIENT, rtol=0)
    moved = adam_step(AdamState.start(w), gradient).weights
    torch.testing.assert_close(moved, double([-0.02499999, 0.02499999]), atol=GRADIENT, rtol=0)
    torch.testing.assert_close(moved.softmax(0), double([0.48750261, 0.51249739]), atol=GRADIENT, rtol=0)
