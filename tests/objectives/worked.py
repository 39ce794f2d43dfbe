"""Two worked examples of every method, to all printed digits (float64, computed once by an independent program)."""

import torch

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


def assert_worked(loss, values, gradients=None, *, value=VALUE):
    """The losses of both examples, their gradients, and their mean."""
    z = Z.clone().requires_grad_()
    rows = loss(z, reduction="none")
    torch.testing.assert_close(rows.detach(), double(values), atol=value, rtol=0)
    if gradients is not None:
        rows.sum().backward()
        torch.testing.assert_close(z.grad, double(gradients), atol=GRADIENT, rtol=0)
    torch.testing.assert_close(loss(Z), rows.detach().mean(), atol=1e-15, rtol=0)
