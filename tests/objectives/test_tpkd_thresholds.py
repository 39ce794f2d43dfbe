"""The thresholds of the fast path against the one by sort, where finding it is hard."""

import pytest
import torch
from torch import Tensor

from tpkd.geometry.cone import safe_threshold
from tpkd.objectives import tpkd_fast
from tpkd.objectives.tpkd_traced import traced_threshold


def adversarial_rows(num_classes: int) -> Tensor:
    """Differences r - q that make a threshold hard: ties, all equal, geometric and exponential tails, one spike."""
    generator = torch.Generator().manual_seed(num_classes)
    steps = torch.arange(num_classes, dtype=torch.float64)
    uniform = torch.rand(num_classes, generator=generator, dtype=torch.float64)
    sizes = [
        torch.zeros(num_classes, dtype=torch.float64),
        torch.ones(num_classes, dtype=torch.float64),
        uniform.mul(4).round(),
        0.5**steps,
        1 / (1 + steps),
        (1 + steps).rsqrt(),
        -uniform.log(),
        torch.randn(num_classes, generator=generator, dtype=torch.float64).abs(),
        torch.where(steps == 0, 1.0, 1e-9),
    ]
    rows = []
    for size in sizes:
        sign = torch.where(torch.rand(num_classes, generator=generator) < 0.5, 1.0, -1.0)
        for part in (-size, size * sign, -size.flip(0)):
            centred = part - part.mean()
            rows.append(centred / centred.abs().sum().clamp(min=1e-300) * 2)
    return torch.stack(rows)


@pytest.mark.parametrize("num_classes", [3, 64, 256, 257, 1000, 4096, 16384, 40000])
def test_steps_and_sort_find_the_same_threshold(num_classes):
    u = adversarial_rows(num_classes)
    expected = safe_threshold(torch.zeros(len(u), dtype=u.dtype), u)
    memory = torch.zeros(len(u), 2, tpkd_fast._scratch_width(num_classes), dtype=u.dtype)
    memory[:, 1, :num_classes] = u
    found = tpkd_fast._safe_threshold(memory[:, 1, :num_classes], memory, torch.empty_like(u)).squeeze(-1)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-16)
    traced = traced_threshold(u).squeeze(-1)
    torch.testing.assert_close(traced, expected, rtol=1e-6, atol=1e-16)
    assert (traced >= expected - 1e-15).all()
