"""A teacher that was cut to its top classes and filled up is told from one that answers for all."""

import math
from pathlib import Path

import torch
from torch import Tensor

from tpkd.errors import InputError

_LOST = 53 * math.log(2)
"""Nats below a logit from which on a float64 that holds the larger probability does not notice the smaller one."""


class TeacherFloor:
    """Whether logits, block by block, are those of a teacher that was cut to its top classes and filled up.

    Said only of what no network answers: in every row several classes share the lowest value to the last bit, so far
    below the next one that beside it their probabilities are lost even in float64. Classes that are at the floor in
    all rows were masked on purpose, and a single class above it is a label, not a cut: neither is counted as one.

    Example:
        >>> floor = TeacherFloor()
        >>> floor.add(torch.tensor([[3.0, 2.0, -1e4, -1e4], [-1e4, 1.0, -1e4, 4.0]]).double())
        >>> floor.is_cut
        True
    """

    def __init__(self) -> None:
        """Nothing seen yet."""
        self._always, self._moves, self._keeps_several = True, False, False
        self._first: Tensor | None = None
        self._value = 0.0

    def add(self, logits: Tensor) -> None:
        """See more rows; after the first honest one nothing is computed any more."""
        if not self._always:
            return
        logits = logits.double()
        lowest = logits.amin(-1, keepdim=True)
        at_floor = logits == lowest
        above = logits.masked_fill(at_floor, torch.inf).amin(-1, keepdim=True) - lowest
        kept = (~at_floor).sum(-1)
        self._always = bool(((at_floor.sum(-1) >= 2) & (kept >= 1) & (above.squeeze(-1) >= _LOST)).all())
        if self._first is None:
            self._first, self._value = at_floor[0], lowest[0].item()
        self._moves |= bool((at_floor != self._first).any())
        self._keeps_several |= bool((kept >= 2).any())

    @property
    def is_cut(self) -> bool:
        """Whether everything seen so far, and something was, has the shape of a cut."""
        return self._always and self._moves and self._keeps_several

    def check(self, source: str | Path) -> None:
        """Refuse a teacher that was cut; `source` is how the message calls it."""
        if self.is_cut:
            raise InputError(
                f"{source}: expected the logits of all classes, found all but the largest of every row at one value "
                f"({self._value:.6g} in row 0): a teacher cut to its top classes flips the blocking test; store "
                "log_probs and indices of these classes instead"
            )
