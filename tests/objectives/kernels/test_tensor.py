"""The tensor code: its thresholds against the one of the reference, where finding it is hard."""

import pytest
import torch
from torch import Tensor

from tpkd.geometry.cone import safe_threshold
from tpkd.geometry.directions import directions
from tpkd.objectives.kernels import tensor
from tpkd.objectives.kernels.tensor import threshold
from tpkd.objectives.tpkd import tpkd_loss


def adversarial_rows(num_classes: int) -> Tensor:
    """Differences r - q that make a threshold hard: ties, geometric and exponential tails, one spike, one lane."""
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
        torch.where(steps % 32 == 0, 1 + uniform, 1e-9),
    ]
    rows = []
    for size in sizes:
        sign = torch.where(torch.rand(num_classes, generator=generator) < 0.5, 1.0, -1.0)
        for part in (-size, size * sign, -size.flip(0)):
            centred = part - part.mean()
            rows.append(centred / centred.abs().sum().clamp(min=1e-300) * 2)
    return torch.stack(rows)


@pytest.mark.parametrize("num_classes", [3, 64, 128, 129, 256, 1000, 1024, 1025, 4096, 16384, 40000])
def test_all_find_the_threshold_of_the_reference(monkeypatch, num_classes):
    u = adversarial_rows(num_classes)
    expected = safe_threshold(torch.zeros(len(u), dtype=u.dtype), u)
    torch.testing.assert_close(threshold(u).squeeze(-1), expected, rtol=1e-10, atol=1e-16)
    monkeypatch.setattr(tensor, "can_read_values", lambda tensor: False)
    found = threshold(u).squeeze(-1)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-16)
    assert (found >= expected - 1e-15).all()


@pytest.mark.parametrize(("num_classes", "exact"), [(64, 2e-6), (257, 2e-6), (1000, 2e-6), (4096, 5e-5)])
def test_the_loss_finds_them_too(num_classes, exact):
    """From logits whose r and q differ by such rows; a large beta lets little else be seen."""
    u = adversarial_rows(num_classes)
    spread = 1e-3 / num_classes  # so that no logit is infinite
    pair = [(part.clamp(min=0) + spread).log() for part in (u, -u)]
    student, teacher = (torch.nn.functional.pad(logits, (1, 0)).float() for logits in pair)
    labels = torch.zeros(len(u), dtype=torch.long)
    student.requires_grad_()
    tpkd_loss(student, teacher, labels, reduction="sum", beta=100.0).backward()
    expected = directions(student.detach().double(), teacher.double(), labels, beta=100.0).update
    scale = expected.abs().amax(-1, keepdim=True)
    assert student.grad is not None
    torch.testing.assert_close(student.grad / scale, expected / scale, rtol=0, atol=exact, check_dtype=False)
