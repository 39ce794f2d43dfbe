"""Statements checked case by case, and sizes that the data did not allow: recorded by every study."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from tpkd.mechanism.record import Check, Scaling


@dataclass(frozen=True)
class Statement:
    """What is checked, and whether it is a theorem or only an observation of the paper."""

    text: str
    theorem: bool = True
    strict: bool = False
    """Whether more than the tolerance is asked for, instead of not less than minus the tolerance."""


class Checks:
    """Counts the cases of each statement and those that break it.

    Example:
        >>> import torch
        >>> checks = Checks({"order": Statement("a >= b")}, tolerance=1e-12)
        >>> checks.add("order", torch.tensor([0.5, -1e-13, -0.25], dtype=torch.float64))
        >>> checks.records()
        (Check(name='order', statement='a >= b', theorem=True, cases=3, violations=1, worst=-0.25),)
    """

    def __init__(self, statements: Mapping[str, Statement], tolerance: float) -> None:
        """Start empty; every statement is reported, even without cases."""
        self._statements, self._tolerance = statements, tolerance
        self._slacks: dict[str, list[Tensor]] = {name: [] for name in statements}

    def add(self, name: str, slack: Tensor | float) -> None:
        """Count cases by how far the left side is above the right."""
        self._slacks[name].append(torch.as_tensor(slack, dtype=torch.float64).reshape(-1))

    def records(self) -> tuple[Check, ...]:
        """One record per statement, in their order."""
        return tuple(self._record(name, statement) for name, statement in self._statements.items())

    def _record(self, name: str, statement: Statement) -> Check:
        slack = torch.cat([torch.zeros(0, dtype=torch.float64), *self._slacks[name]])
        # Negated, so that a NaN counts as a violation.
        broken = ~(slack > self._tolerance) if statement.strict else ~(slack >= -self._tolerance)
        least = slack.min().item() if len(slack) else math.nan
        worst = least if math.isfinite(least) else None
        return Check(name, statement.text, statement.theorem, len(slack), int(broken.sum()), worst)


def scaling(name: str, asked: int, used: int, reason: str) -> tuple[Scaling, ...]:
    """A size for the record where it is not the one that was asked for.

    Example:
        >>> scaling("samples", 2000, 2000, "enough"), scaling("samples", 2000, 719, "the split has 719")[0].used
        ((), 719)
    """
    return () if used == asked else (Scaling(name, asked, used, reason),)
