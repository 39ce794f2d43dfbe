"""The losses of DHKD's second head on the worked examples."""

import torch

from objectives.worked import GRADIENT, VALUE, ZT, A, double
from tpkd.objectives import (
    BinaryKL,
    BinaryKLNorm,
)


def test_worked_binary_kl():
    a = A.clone().requires_grad_()
    norm = BinaryKLNorm()(a, ZT, reduction="none")
    torch.testing.assert_close(norm.detach(), double([0.3684021740, 0.7148184869]), atol=VALUE, rtol=0)
    norm.sum().backward()
    expected = [[0.124353, -0.124353, -0.124353, 0.35835740], [0.19737532, -0.46211716, -0.124353, -0.24491866]]
    torch.testing.assert_close(a.grad, double(expected), atol=5e-7, rtol=0)  # some are printed to six digits
    torch.testing.assert_close(a.grad[1, 1:2], double([-0.46211716]), atol=GRADIENT, rtol=0)
    plain = BinaryKL()(A, ZT, reduction="none")
    torch.testing.assert_close(plain, double([0.3657209938, 0.6642601081]), atol=VALUE, rtol=0)
