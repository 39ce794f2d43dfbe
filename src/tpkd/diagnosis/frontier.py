"""What is left to learn at each price, on average over a sample."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tpkd.diagnosis.record import FrontierCurve
from tpkd.diagnosis.totals import KeptRows
from tpkd.geometry.correct import insert_target
from tpkd.geometry.top_k import TopK
from tpkd.theory.compensation import pair_transfer_cost
from tpkd.theory.frontier import Ordered, frontier_values, order_by_gap
from tpkd.theory.pair import split_pair
from tpkd.theory.truncated import split_truncated

EQUAL_BELOW = 1e-12
"""Nats of teacher KL that are rounding: logits in single precision that differ by their last digit are 1e-14 apart."""

FRONTIER_STEPS = 32
KEPT_ORDERED = 2**19
"""Logits of a sample up to which what is sorted of it is kept: some ten numbers of 8 bytes for each."""
HALF_BUDGET_TOLERANCE = 1e-8


def frontier_of(sample: KeptRows) -> FrontierCurve:
    """The mean V(B) up to where hardly anything is left: a first look finds that budget, a second one draws it.

    With a truncated teacher it is that of the completed one, and at every budget a lower bound: of any x <= e^B r the
    sums over merged classes are such an x again, whose KL to the merged teacher is no larger (log-sum inequality); and
    spread out in the student's proportions it is one for the completed teacher, with the same KL.
    """
    costs = _costs(sample)
    sample = replace(sample, teacher=_whole(sample))
    # Sorted once for all budgets, unless that would take more than a few dozen megabytes.
    ordered = _ordered(sample) if sample.student.numel() <= KEPT_ORDERED else None
    look = _curve(sample, costs.quantile(0.99).item(), ordered)
    ends = (budget for budget, value in zip(look.budgets, look.values, strict=True) if value <= 0.01 * look.values[0])
    curve = _curve(sample, next(ends, look.budgets[-1]), ordered)
    return replace(curve, half_budget=_half_budget(sample, curve, costs.amax().item(), ordered))


def _costs(sample: KeptRows) -> Tensor:
    z, zt, y = sample.student, sample.teacher, sample.labels
    return pair_transfer_cost(split_truncated(z, zt, y).pair if isinstance(zt, TopK) else split_pair(z, zt, y))


def _ordered(sample: KeptRows) -> Ordered:
    assert isinstance(sample.teacher, Tensor)
    return order_by_gap(split_pair(sample.student, sample.teacher, sample.labels))


def _whole(sample: KeptRows) -> Tensor:
    """Teacher logits; of a truncated teacher, logits with the conditional distribution of the completed one."""
    if not isinstance(sample.teacher, TopK):
        return sample.teacher
    pair = split_truncated(sample.student, sample.teacher, sample.labels).pair
    # Neither loss nor price depends on the label's logit, and a teacher may be certain of the label. As differences
    # from the student, equal relations stay equal to the bit.
    return sample.student + insert_target(pair.log_ratio, torch.zeros_like(pair.student.log_odds), sample.labels)


def _curve(sample: KeptRows, largest_budget: float, ordered: Ordered | None) -> FrontierCurve:
    step = _round_step(largest_budget / FRONTIER_STEPS)
    budgets = [round(step * index, 12) for index in range(FRONTIER_STEPS + 1)]
    return FrontierCurve(len(sample), tuple(budgets), tuple(_mean_left(sample, budgets, ordered)))


def _half_budget(sample: KeptRows, curve: FrontierCurve, largest_cost: float, ordered: Ordered | None) -> float | None:
    """The budget at which half of the mean V(0) is left, by bisection: V falls, and is zero at the largest cost."""
    start = curve.values[0]
    if start <= EQUAL_BELOW or not math.isfinite(start + largest_cost):
        return None
    points = [*zip(curve.budgets, curve.values, strict=True), (largest_cost, 0.0)]
    low = max(budget for budget, value in points if value > start / 2)
    high = min(budget for budget, value in points if value <= start / 2)
    while high - low > HALF_BUDGET_TOLERANCE * high:
        middle = (low + high) / 2
        (left,) = _mean_left(sample, [middle], ordered)
        low, high = (low, middle) if left <= start / 2 else (middle, high)
    return high


def _mean_left(sample: KeptRows, budgets: Sequence[float], ordered: Ordered | None) -> list[float]:
    """The mean V(B) of a sample at each budget."""
    grid = torch.tensor(budgets, dtype=torch.float64)
    if ordered is not None:
        return (frontier_values(ordered, grid).sum(0) / len(sample)).tolist()
    totals = torch.zeros_like(grid)
    rows = max(1, KEPT_ORDERED // sample.student.shape[-1])
    for start in range(0, len(sample), rows):
        totals += frontier_values(_ordered(sample[start : start + rows]), grid).sum(0)
    return (totals / len(sample)).tolist()


def _round_step(smallest: float) -> float:
    """The next of ..., 0.1, 0.2, 0.5, 1, 2, 5, ...; 1/32 where nothing costs anything."""
    if smallest <= 0:
        return 1 / FRONTIER_STEPS
    power = 10.0 ** math.floor(math.log10(smallest))
    return next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= smallest)
