"""The inner product over classes keeps its precision under autocast, and its batch shape."""

import torch

from tpkd.theory.vectors import inner


def test_inner_products_of_a_batch():
    a, b = torch.randn(2, 3, 5, dtype=torch.float64)
    expected = torch.stack([torch.dot(x, y) for x, y in zip(a, b, strict=True)])
    torch.testing.assert_close(inner(a, b), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(inner(a.float(), b.float()), (a.float() * b.float()).sum(-1))
