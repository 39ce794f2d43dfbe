import math

import pytest
import torch

from tpkd.teacher.mixture import mixture_log_probs


def by_loops(own, others, shares):
    rows = []
    for first, second, share in zip(own.tolist(), others.tolist(), shares.tolist(), strict=True):
        sums = [math.fsum(math.exp(z - max(row)) for z in row) for row in (first, second)]
        probs = [
            [math.exp(z - max(row)) / total for z in row] for row, total in zip((first, second), sums, strict=True)
        ]
        rows.append([math.log(share * a + (1 - share) * b) for a, b in zip(*probs, strict=True)])
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 1e-5), (torch.float16, 1e-5)], ids=str
)
def test_it_is_the_logarithm_of_the_weighted_sum(dtype, tolerance):
    generator = torch.Generator().manual_seed(0)
    own, others = (5 * torch.randn(50, 7, generator=generator, dtype=torch.float64) for _ in range(2))
    shares = torch.rand(50, generator=generator, dtype=torch.float64)
    own, others = own.to(dtype), others.to(dtype)
    found = mixture_log_probs(own, others, shares)
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(found.double(), by_loops(own.double(), others.double(), shares), rtol=0, atol=tolerance)
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(50, dtype=found.dtype), rtol=0, atol=1e-5)


def test_nothing_of_one_image_leaves_the_answer_to_the_other():
    own, others = torch.tensor([[1.0, -2.0, 0.5]]), torch.tensor([[100.0, -100.0, 0.0]])
    assert torch.equal(mixture_log_probs(own, others, torch.ones(1)), own.log_softmax(-1))
    assert torch.equal(mixture_log_probs(own, others, torch.zeros(1)), others.log_softmax(-1))


def test_a_share_near_one_keeps_the_digits_of_what_it_leaves():
    """One pixel of 224 x 224: in single precision the rest of one would have three digits."""
    own, others = torch.tensor([[0.0, -200.0]]), torch.tensor([[-200.0, 0.0]])
    share = torch.tensor([1 - 1 / 224**2], dtype=torch.float64)
    assert mixture_log_probs(own, others, share)[0, 1].item() == pytest.approx(-math.log(224**2), abs=1e-6)
