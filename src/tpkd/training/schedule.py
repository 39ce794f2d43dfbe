"""The learning rate of each iteration."""

import math

from tpkd.config.loading import ConfigError
from tpkd.config.schedules import CosineSchedule, LinearSchedule, ScheduleConfig, StepSchedule, WarmupLinearSchedule


def rate_factor(schedule: ScheduleConfig, iteration: int, num_iterations: int, epoch: int = 1) -> float:
    """By what the base rate is multiplied at iteration k, counted from 0.

    Paper: appendix E.1, text: k / 112 while k < 112, then 1 - k / 1125. The first iteration moves nothing, and the
    warm-up ends above the line it then follows.

    Args:
        schedule: a section of the configuration, whose docstring has its formula.
        iteration: k.
        num_iterations: those of the whole run.
        epoch: that of the iteration's first sample, counted from 1; for milestones that are epochs.

    Example:
        >>> schedule = WarmupLinearSchedule(warmup=112)
        >>> [round(rate_factor(schedule, k, 1125), 4) for k in (0, 111, 112, 1124)]
        [0.0, 0.9911, 0.9004, 0.0009]
        >>> [round(rate_factor(CosineSchedule(warmup=0.2, final=0.1), k, 10), 3) for k in (0, 1, 2, 6, 9)]
        [0.0, 0.5, 1.0, 0.55, 0.134]
    """
    if not 0 <= iteration < num_iterations:
        raise ValueError(f"iteration: expected 0 to {num_iterations - 1}, got {iteration}")
    warmup = in_steps(schedule.warmup, num_iterations)
    if iteration < warmup:
        return iteration / warmup
    if isinstance(schedule, WarmupLinearSchedule):
        return 1 - iteration / num_iterations
    progress = (iteration - warmup) / (num_iterations - warmup)
    if isinstance(schedule, LinearSchedule):
        return 1 - progress
    if isinstance(schedule, CosineSchedule):
        return schedule.final + (1 - schedule.final) * (1 + math.cos(math.pi * progress)) / 2
    if isinstance(schedule, StepSchedule):
        return schedule.factor ** _passed(schedule, iteration, num_iterations, epoch)
    return 1.0


def in_steps(length: int | float, num_iterations: int) -> int:
    """A number of steps, or the nearest to a share of all steps.

    Example:
        >>> in_steps(100, 1125), in_steps(0.1, 1125), in_steps(0.29, 100)
        (100, 112, 29)
    """
    return length if isinstance(length, int) else round(length * num_iterations)


def _passed(schedule: StepSchedule, iteration: int, num_iterations: int, epoch: int) -> int:
    return sum(
        epoch > milestone if isinstance(milestone, int) else iteration >= in_steps(milestone, num_iterations)
        for milestone in schedule.milestones
    )


def check_warmup(schedule: ScheduleConfig, num_iterations: int) -> None:
    """Refuse a warm-up that the run never leaves; the paper's schedule is taken as it is.

    Raises:
        ConfigError: names the length of the run.
    """
    warmup = in_steps(schedule.warmup, num_iterations)
    if warmup >= num_iterations and warmup and not isinstance(schedule, WarmupLinearSchedule):
        found = f"found {schedule.warmup}; a share such as 0.1 follows the length of the run"
        raise ConfigError(f"schedule.warmup: expected fewer steps than the {num_iterations} of the run, {found}")
