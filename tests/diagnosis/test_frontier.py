"""The mean frontier of a sample; of a truncated teacher a lower bound at every budget."""

import pytest
import torch

from tpkd.diagnosis.frontier import frontier_of
from tpkd.diagnosis.totals import KeptRows
from tpkd.geometry import TopK
from tpkd.teacher.cache.truncation import truncate
from tpkd.theory import frontier


def sample(k, seed=0, rows=40, classes=12):
    generator = torch.Generator().manual_seed(seed)
    z, zt = (2 * torch.randn(rows, classes, generator=generator, dtype=torch.float64) for _ in range(2))
    y = torch.randint(classes, (rows,), generator=generator)
    return KeptRows(torch.arange(rows), z, truncate(zt, y, k) if k else zt, y), zt


@pytest.mark.parametrize("k", [1, 3, 6, 11])
@pytest.mark.parametrize("seed", range(3))
def test_a_truncated_teachers_curve_lies_below_the_whole_ones(k, seed):
    kept, zt = sample(k, seed)
    curve = frontier_of(kept)
    grid = torch.tensor(curve.budgets, dtype=torch.float64).unsqueeze(-1)
    above = frontier(kept.student, zt, kept.labels, grid).value.mean(-1)
    assert (torch.tensor(curve.values, dtype=torch.float64) <= above + 1e-12).all()
    assert curve.values[0] < above[0] or k == 11


def test_all_classes_kept_give_the_whole_teachers_curve():
    whole, cut = frontier_of(sample(None)[0]), frontier_of(sample(12)[0])
    assert cut.budgets == whole.budgets
    assert cut.values == pytest.approx(whole.values, rel=1e-9, abs=1e-13)
    assert cut.half_budget == pytest.approx(whole.half_budget, rel=1e-7)


def test_a_known_zero_and_a_teacher_that_is_certain_stay_finite():
    z = torch.zeros(2, 4, dtype=torch.float64)
    log_t = torch.tensor([[0.5, 0.0, 0.5], [1.0, 0.0, 0.0]], dtype=torch.float64).log()
    top_k = TopK(log_t, torch.tensor([[0, 1, 2], [0, 1, 2]]), rest_log_probs=torch.full((2,), -torch.inf).double())
    kept = KeptRows(torch.arange(2), z, top_k, torch.tensor([0, 0]))
    curve = frontier_of(kept)
    assert all(0 <= value < 10 for value in curve.values)
    certain = frontier_of(kept[1:])
    assert set(certain.values) == {0.0}
