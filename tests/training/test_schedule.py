import pytest
import torch
import transformers

from tpkd.config.loading import ConfigError
from tpkd.config.schedules import (
    ConstantSchedule,
    CosineSchedule,
    LinearSchedule,
    StepSchedule,
    WarmupLinearSchedule,
)
from tpkd.training.schedule import check_warmup, in_steps, rate_factor

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


def factors_of(schedule, steps):
    return [rate_factor(schedule, k, steps) for k in range(steps)]


def factors_elsewhere(make, steps):
    """The factors of a schedule of torch or transformers, read off an optimiser whose base rate is 1."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, found = make(optimizer), []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize(("steps", "warmup"), [(1, 0), (7, 0), (7, 1), (7, 6), (40, 0), (40, 6), (40, 0.1)])
def test_schedules_are_those_of_transformers(steps, warmup):
    length = in_steps(warmup, steps)
    theirs = {
        ConstantSchedule: lambda o: transformers.get_constant_schedule_with_warmup(o, length),
        LinearSchedule: lambda o: transformers.get_linear_schedule_with_warmup(o, length, steps),
        CosineSchedule: lambda o: transformers.get_cosine_schedule_with_warmup(o, length, steps),
    }
    for kind, make in theirs.items():
        # The same fractions, divided in another order.
        expected = pytest.approx(factors_elsewhere(make, steps), abs=1e-15)
        assert factors_of(kind(warmup=warmup), steps) == expected


def test_the_cosine_ends_at_its_final_share():
    found = factors_elsewhere(
        lambda o: transformers.get_cosine_with_min_lr_schedule_with_warmup(o, 4, 30, min_lr_rate=0.2), 30
    )
    assert factors_of(CosineSchedule(warmup=4, final=0.2), 30) == pytest.approx(found, abs=1e-15)
    # The last step is one before the end, where the share is reached.
    assert rate_factor(CosineSchedule(final=0.2), 9_999, 10_000) == pytest.approx(0.2, abs=1e-6)


def test_steps_are_torchs_for_shares_and_epochs():
    torchs = factors_elsewhere(lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [10, 15], gamma=0.3), 20)
    shares, epochs = (StepSchedule(milestones=milestones, factor=0.3) for milestones in ([0.5, 0.75], [2, 3]))
    assert factors_of(shares, 20) == pytest.approx(torchs, rel=1e-15)
    # Four epochs of five steps each.
    assert [rate_factor(epochs, k, 20, k // 5 + 1) for k in range(20)] == pytest.approx(torchs, rel=1e-15)


def test_milestones_wait_for_the_warm_up():
    schedule = StepSchedule(milestones=[0.1], factor=0.5, warmup=0.4)
    assert factors_of(schedule, 10) == [0.0, 0.25, 0.5, 0.75, *[0.5] * 6]


def test_a_share_is_the_nearest_number_of_steps():
    """0.29 * 100 is 28.999999999999996 and 0.07 * 100 is 7.000000000000001."""
    assert [in_steps(share, 100) for share in (0.29, 0.07, 0.0, 0.001)] == [29, 7, 0, 0]
    assert in_steps(0.1, 1125) == 112  # the paper's warm-up
    assert in_steps(300, 100) == 300


@pytest.mark.parametrize("kind", [ConstantSchedule, LinearSchedule, CosineSchedule])
def test_a_warm_up_as_long_as_the_run_is_refused(kind):
    for warmup in (20, 500, 0.99):
        with pytest.raises(ConfigError, match=r"schedule\.warmup: expected fewer steps than the 20 of the run, found"):
            check_warmup(kind(warmup=warmup), 20)
    for warmup in (0, 19, 0.9):
        check_warmup(kind(warmup=warmup), 20)
    check_warmup(kind(), 1)
    check_warmup(WarmupLinearSchedule(warmup=500), 20)
