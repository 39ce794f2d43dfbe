import pytest

from tpkd.config.schema import ConstantSchedule, WarmupLinearSchedule
from tpkd.training.schedule import rate_factor

PAPER = WarmupLinearSchedule(warmup=112)


@pytest.mark.parametrize(
    ("k", "factor"), [(0, 0.0), (56, 0.5), (111, 111 / 112), (112, 1 - 112 / 1125), (1124, 1 / 1125)]
)
def test_the_papers_schedule(k, factor):
    assert rate_factor(PAPER, k, 1125) == pytest.approx(factor, abs=1e-15)


def test_the_papers_schedule_drops_where_the_warm_up_ends():
    assert round(rate_factor(PAPER, 111, 1125), 3) == 0.991
    assert round(rate_factor(PAPER, 112, 1125), 4) == 0.9004


def test_a_constant_rate_is_constant():
    assert {rate_factor(ConstantSchedule(), k, 10) for k in range(10)} == {1.0}


def test_without_warm_up_the_first_rate_is_the_base_rate():
    assert rate_factor(WarmupLinearSchedule(warmup=0), 0, 10) == 1.0


@pytest.mark.parametrize("k", [-1, 10])
def test_an_iteration_outside_the_run_is_refused(k):
    with pytest.raises(ValueError, match="iteration: expected 0 to 9"):
        rate_factor(ConstantSchedule(), k, 10)
