"""What a diagnosis keeps while blocks of examples stream by: sums, counts and a few rows, never the examples."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tpkd.geometry import binary_kl_divergence
from tpkd.theory.diagnosis import Diagnosis
from tpkd.theory.pair import Pair

CONFIDENCE_EDGES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0)
"""Finer towards one, where a student that has learned its labels has most of its examples."""

PAIR_TABLE_CLASSES = 2048
"""Tables of class pairs hold 3 K^2 numbers: 100 MB here, and not kept for more classes."""


class ClassMeans:
    """Sums of every field by label, over all examples and over the blocked ones."""

    def __init__(self, num_classes: int) -> None:
        """Start with nothing."""
        self.names = (*Diagnosis.names(), "confidence_part", "conditional_part")
        self.counts = torch.zeros(num_classes, dtype=torch.long)
        self.sums = torch.zeros(num_classes, len(self.names), dtype=torch.float64)
        self.blocked_sums = torch.zeros(len(self.names), dtype=torch.float64)

    def add(self, state: Diagnosis, pair: Pair) -> None:
        """Add a block."""
        fields = [getattr(state, name).double() for name in Diagnosis.names()]
        fields.append(binary_kl_divergence(pair.teacher.log_odds, pair.student.log_odds))
        fields.append(pair.teacher.log_residual.exp() * state.conditional_loss)
        values = torch.stack(fields, dim=-1)
        self.counts += torch.bincount(pair.labels, minlength=len(self.counts))
        self.sums.index_add_(0, pair.labels, values)
        self.blocked_sums += values[state.blocked].sum(0)

    def over_all(self) -> dict[str, float]:
        """The mean of every field."""
        return dict(zip(self.names, (self.sums.sum(0) / self.counts.sum()).tolist(), strict=True))

    def over_blocked(self) -> dict[str, float | None]:
        """The mean of every field over the blocked examples; None when there is none."""
        return self._means(self.blocked_sums, self.blocked_examples)

    def of_class(self, index: int) -> dict[str, float | None]:
        """The mean of every field over the examples of one class; None when there is none."""
        return self._means(self.sums[index], int(self.counts[index]))

    def _means(self, sums: Tensor, count: int) -> dict[str, float | None]:
        return {name: value / count if count else None for name, value in zip(self.names, sums.tolist(), strict=True)}

    @property
    def blocked_examples(self) -> int:
        """How many examples are blocked."""
        return round(self.blocked_sums[self.names.index("blocked")].item())


class GrowingHistogram:
    """Counts of nonnegative values in 2,048 bins whose width doubles whenever a value lies beyond the last.

    Bins of the new width hold pairs of the old ones exactly: counts depend neither on the order of the values nor on
    blocks.
    """

    def __init__(self, bins: int = 2048) -> None:
        """Start with the finest bins."""
        self.width = 2.0**-20
        self.counts = torch.zeros(bins, dtype=torch.long)
        self.largest = 0.0

    def add(self, values: Tensor) -> None:
        """Count a block."""
        self.largest = max(self.largest, values.amax().item())
        while self.largest >= self.width * len(self.counts):
            merged = self.counts.view(-1, 2).sum(-1)
            self.counts = torch.cat([merged, torch.zeros_like(merged)])
            self.width *= 2
        self.counts += torch.bincount((values / self.width).long(), minlength=len(self.counts))

    def coarse(self, bins: int, share: float) -> tuple[float, list[int]]:
        """Width and counts of at most `bins` bins that reach the quantile `share`; the last one holds the rest too."""
        reached = self.counts.cumsum(0) >= share * self.counts.sum()
        needed = int(reached.long().argmax()) + 1
        group = max(1, 2 ** int(np.ceil(np.log2(needed / bins))))
        counts = self.counts.view(-1, group).sum(-1)
        last = -(-needed // group) - 1
        return self.width * group, [*counts[:last].tolist(), int(counts[last:].sum())]


class ConfidenceBins:
    """How many examples have which confidence, and how many of them are blocked."""

    def __init__(self) -> None:
        """Start with nothing."""
        bins = len(CONFIDENCE_EDGES) - 1
        self.examples, self.teacher_examples, self.blocked = (torch.zeros(bins, dtype=torch.long) for _ in range(3))
        self._inner = torch.tensor(CONFIDENCE_EDGES[1:-1], dtype=torch.float64)

    def add(self, state: Diagnosis) -> None:
        """Count a block."""
        student = torch.bucketize(state.confidence, self._inner, right=True)
        teacher = torch.bucketize(state.teacher_confidence, self._inner, right=True)
        self.examples += torch.bincount(student, minlength=len(self.examples))
        self.teacher_examples += torch.bincount(teacher, minlength=len(self.examples))
        self.blocked += torch.bincount(student[state.blocked], minlength=len(self.examples))


class PairTable:
    """Sums of q_j log(q_j / r_j), q_j and r_j by label and incorrect class."""

    def __init__(self, num_classes: int) -> None:
        """Start with nothing."""
        self.left, self.teacher, self.student = (
            torch.zeros(num_classes, num_classes - 1, dtype=torch.float64) for _ in range(3)
        )

    def add(self, pair: Pair) -> None:
        """Add a block."""
        q = pair.teacher.log_conditional.exp()
        self.left.index_add_(0, pair.labels, q * pair.log_ratio)
        self.teacher.index_add_(0, pair.labels, q)
        self.student.index_add_(0, pair.labels, pair.student.log_conditional.exp())

    def largest(self, count: int) -> list[tuple[int, int, float, float, float]]:
        """Label, competitor and the three sums of the pairs with most left to learn."""
        flat = self.left.flatten()
        order = flat.topk(min(count, flat.numel())).indices
        others = self.left.shape[1]
        found = []
        for index in order[flat[order] > 0].tolist():
            label, column = divmod(index, others)
            sums = (table[label, column].item() for table in (self.left, self.teacher, self.student))
            found.append((label, column + (column >= label), *sums))
        return found


@dataclass(frozen=True)
class KeptRows:
    """A few examples with their logits, for what can only be said at the end."""

    rows: Tensor
    student: Tensor
    teacher: Tensor
    labels: Tensor


class CostliestExamples:
    """The examples with the largest transfer cost; of equal ones the first."""

    def __init__(self, count: int, num_classes: int) -> None:
        """Start with nothing."""
        self.count = count
        self._costs = torch.zeros(0, dtype=torch.float64)
        none, no_rows = torch.zeros(0, num_classes, dtype=torch.float64), torch.zeros(0, dtype=torch.long)
        self.kept = KeptRows(no_rows, none, none, no_rows)

    def add(self, start: int, costs: Tensor, student: Tensor, teacher: Tensor, labels: Tensor) -> None:
        """Look at a block."""
        if len(self._costs) == self.count and costs.amax() <= self._costs[-1]:
            return
        chosen = costs.sort(descending=True, stable=True).indices[: self.count]
        costs = torch.cat([self._costs, costs[chosen]])
        order = costs.sort(descending=True, stable=True).indices[: self.count]
        self._costs, kept = costs[order], self.kept
        self.kept = KeptRows(
            torch.cat([kept.rows, chosen + start])[order],
            torch.cat([kept.student, student[chosen]])[order],
            torch.cat([kept.teacher, teacher[chosen]])[order],
            torch.cat([kept.labels, labels[chosen]])[order],
        )


class UniformSample:
    """A sample of the examples, drawn by row number before the first block, so that it does not depend on blocks."""

    def __init__(self, examples: int, size: int, num_classes: int) -> None:
        """Draw the rows."""
        drawn = np.random.default_rng(0).choice(examples, size=min(size, examples), replace=False)
        rows = torch.from_numpy(np.sort(drawn))
        student, teacher = (torch.empty(len(rows), num_classes, dtype=torch.float64) for _ in range(2))
        self.kept = KeptRows(rows, student, teacher, torch.empty_like(rows))

    def add(self, start: int, student: Tensor, teacher: Tensor, labels: Tensor) -> None:
        """Keep what was drawn of a block."""
        kept = self.kept
        first, last = torch.searchsorted(kept.rows, torch.tensor([start, start + len(labels)])).tolist()
        chosen = kept.rows[first:last] - start
        kept.student[first:last], kept.teacher[first:last] = student[chosen], teacher[chosen]
        kept.labels[first:last] = labels[chosen]
