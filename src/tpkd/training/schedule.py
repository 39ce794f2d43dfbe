"""The learning rate of each iteration."""

from tpkd.config.schema import ConstantSchedule, WarmupLinearSchedule


def rate_factor(schedule: ConstantSchedule | WarmupLinearSchedule, iteration: int, num_iterations: int) -> float:
    """By what the base rate is multiplied at iteration k, counted from 0.

    Paper: appendix E.1, text: k / 112 while k < 112, then 1 - k / 1125. The first iteration moves nothing, and the
    warm-up ends above the line it then follows.

    Example:
        >>> schedule = WarmupLinearSchedule(warmup=112)
        >>> [round(rate_factor(schedule, k, 1125), 4) for k in (0, 111, 112, 1124)]
        [0.0, 0.9911, 0.9004, 0.0009]
    """
    if not 0 <= iteration < num_iterations:
        raise ValueError(f"iteration: expected 0 to {num_iterations - 1}, got {iteration}")
    if isinstance(schedule, ConstantSchedule):
        return 1.0
    return iteration / schedule.warmup if iteration < schedule.warmup else 1 - iteration / num_iterations
