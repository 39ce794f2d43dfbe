"""What a diagnosis keeps while blocks of examples stream by: sums, counts and a few rows, never the examples."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tpkd.diagnosis.block import Block, SplitBlock
from tpkd.diagnosis.record import WithoutLabel
from tpkd.geometry.correct import insert_target
from tpkd.geometry.top_k import TopK
from tpkd.theory.diagnosis import Diagnosis

CONFIDENCE_EDGES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0)
"""Finer towards one, where a student that has learned its labels has most of its examples."""

PAIR_TABLE_CLASSES = 2048
"""Tables of class pairs hold 3 K^2 numbers: 100 MB here, and not kept for more classes."""


class ClassMeans:
    """Sums of every field by label, over all examples and over the blocked ones.

    Fields that need a label's log-probability, where a truncated teacher has it not for every example, are summed and
    counted over those where it has.
    """

    def __init__(self, num_classes: int) -> None:
        """Start with nothing."""
        self.names = (*Diagnosis.names(), "confidence_part", "conditional_part", "inside_part")
        self.counts, self.known_counts = (torch.zeros(num_classes, dtype=torch.long) for _ in range(2))
        self.sums = torch.zeros(num_classes, len(self.names), dtype=torch.float64)
        self.blocked_sums = torch.zeros(len(self.names), dtype=torch.float64)
        self._needs_label = torch.zeros(len(self.names), dtype=torch.bool)

    def add(self, block: Block) -> None:
        """Add a block."""
        state, parts = block.state, block.parts
        fields = [getattr(state, name).double() for name in Diagnosis.names()]
        fields += [parts.confidence, parts.conditional, parts.inside]
        values, blocked, known_classes = torch.stack(fields, dim=-1), state.blocked, block.classes
        if state.label_known is not None:
            self._needs_label = torch.tensor([_needs_label(name, state.bounds) for name in self.names])
            known = state.label_known.unsqueeze(-1)
            values = torch.where(known | ~self._needs_label, values, 0.0)
            blocked, known_classes = blocked & state.label_known, block.classes[state.label_known]
        self.counts += torch.bincount(block.classes, minlength=len(self.counts))
        self.known_counts += torch.bincount(known_classes, minlength=len(self.counts))
        self.sums.index_add_(0, block.classes, values)
        self.blocked_sums += _sum_of_rows(values[blocked])

    def over_all(self) -> dict[str, float]:
        """The mean of every field."""
        counts = torch.where(self._needs_label, self.known_counts.sum(), self.counts.sum())
        return dict(zip(self.names, (_sum_of_rows(self.sums) / counts).tolist(), strict=True))

    def over_blocked(self) -> dict[str, float | None]:
        """The mean of every field over the blocked examples; None when there is none."""
        return self._means(self.blocked_sums, [self.blocked_examples] * len(self.names))

    def of_class(self, index: int) -> dict[str, float | None]:
        """The mean of every field over the examples of one class; None when there is none."""
        counts = torch.where(self._needs_label, self.known_counts[index], self.counts[index])
        return self._means(self.sums[index], counts.tolist())

    def _means(self, sums: Tensor, counts: list[int]) -> dict[str, float | None]:
        found = zip(self.names, sums.tolist(), counts, strict=True)
        return {name: value / count if count else None for name, value, count in found}

    @property
    def blocked_examples(self) -> int:
        """How many examples are blocked."""
        return round(self.blocked_sums[self.names.index("blocked")].item())


def _sum_of_rows(values: Tensor) -> Tensor:
    # By NumPy, in one order; torch may give each thread a part of it.
    return torch.from_numpy(values.numpy().sum(0))


def _needs_label(name: str, bounds: dict[str, str]) -> bool:
    return bounds.get(name, "lower") in ("lower", "upper") or name == "teacher_confidence"


class WithoutLabelTotals:
    """Sums over the examples of which a truncated teacher does not give the label's log-probability."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.examples, self.conditional_loss, self.transfer_cost = 0, 0.0, 0.0

    def add(self, state: Diagnosis) -> None:
        """Add a block."""
        if state.label_known is not None and not state.label_known.all():
            self.examples += state.num_without_label
            self.conditional_loss += state.conditional_loss[~state.label_known].sum().item()
            self.transfer_cost += state.transfer_cost[~state.label_known].sum().item()

    def finish(self) -> WithoutLabel:
        """The means as a record."""
        if not self.examples:
            return WithoutLabel(0, None, None)
        return WithoutLabel(self.examples, self.conditional_loss / self.examples, self.transfer_cost / self.examples)


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
        if not values.numel():
            return
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
    """Sums of q_j log(q_j / r_j), q_j and r_j by label and class; none at the label itself."""

    def __init__(self, num_classes: int) -> None:
        """Start with nothing."""
        self.sums = torch.zeros(3, num_classes, num_classes, dtype=torch.float64)

    def add(self, block: SplitBlock) -> None:
        """Add a block; of a soft label, at the class with the largest share."""
        pair, q = block.pair, block.pair.teacher.conditional
        zero = torch.zeros_like(pair.student.log_odds)
        for table, values in zip(self.sums, (q * pair.log_ratio, q, pair.student.conditional), strict=True):
            table.index_add_(0, block.classes, insert_target(values, zero, pair.labels))

    def largest(self, count: int) -> list[tuple[int, int, float, float, float]]:
        """Label, competitor and the three sums of the pairs with most left to learn."""
        left = self.sums[0].flatten()
        order = left.topk(min(count, left.numel())).indices
        found = []
        for index in order[left[order] > 0].tolist():
            label, competitor = divmod(index, self.sums.shape[1])
            found.append((label, competitor, *self.sums[:, label, competitor].tolist()))
        return found


@dataclass(frozen=True)
class KeptRows:
    """A few examples with what was read of them, for what can only be said at the end."""

    rows: Tensor
    student: Tensor
    teacher: Tensor | TopK
    labels: Tensor

    def __len__(self) -> int:
        """How many."""
        return len(self.rows)

    def __getitem__(self, chosen: Tensor | slice) -> "KeptRows":
        """Some of them."""
        return KeptRows(self.rows[chosen], self.student[chosen], self.teacher[chosen], self.labels[chosen])

    @classmethod
    def of(cls, block: Block, chosen: Tensor) -> "KeptRows":
        """Some rows of a block, logits in float64."""
        kept = cls(block.rows, block.student, block.teacher, block.labels)[chosen]
        teacher = kept.teacher if isinstance(kept.teacher, TopK) else kept.teacher.double()
        return replace(kept, student=kept.student.double(), teacher=teacher)

    @classmethod
    def joined(cls, parts: Sequence["KeptRows"]) -> "KeptRows":
        """All rows of several, in order."""
        rows, student, labels = (torch.cat([getattr(p, name) for p in parts]) for name in ("rows", "student", "labels"))
        return cls(rows, student, _join([part.teacher for part in parts]), labels)


def _join(teachers: Sequence[Any]) -> Tensor | TopK:
    if not isinstance(teachers[0], TopK):
        return torch.cat(list(teachers))
    columns: dict[str, Any] = {}
    for each in fields(TopK):
        values = [getattr(teacher, each.name) for teacher in teachers]
        columns[each.name] = None if values[0] is None else torch.cat(values)
    return TopK(**columns)


class CostliestExamples:
    """The examples with the largest transfer cost; of equal ones the first."""

    def __init__(self, count: int) -> None:
        """Start with nothing."""
        self.count = count
        self._costs = torch.zeros(0, dtype=torch.float64)
        self._kept: list[KeptRows] = []

    def add(self, block: Block) -> None:
        """Look at a block."""
        costs = block.state.transfer_cost
        # Those that may be kept: a sort of all would take longer than what was done before.
        least = self._costs[-1] if len(self._costs) == self.count else -torch.inf
        above = (costs > least).nonzero().squeeze(-1)
        if not len(above):
            return
        chosen = above[costs[above].sort(descending=True, stable=True).indices[: self.count]]
        costs = torch.cat([self._costs, costs[chosen]])
        order = costs.sort(descending=True, stable=True).indices[: self.count]
        self._costs = costs[order]
        self._kept = [KeptRows.joined([*self._kept, KeptRows.of(block, chosen)])[order]]

    @property
    def kept(self) -> KeptRows:
        """The rows that were kept, costliest first."""
        return self._kept[0]


class UniformSample:
    """A sample of the examples, drawn by number before the first block, so that it does not depend on blocks."""

    def __init__(self, examples: int, size: int) -> None:
        """Draw some of the examples that will be added."""
        drawn = np.random.default_rng(0).choice(examples, size=min(size, examples), replace=False)
        self._drawn, self._seen = torch.from_numpy(np.sort(drawn)), 0
        self._kept: list[KeptRows] = []

    def add(self, block: Block) -> None:
        """Keep what was drawn of a block."""
        end = self._seen + len(block.rows)
        first, last = torch.searchsorted(self._drawn, torch.tensor([self._seen, end])).tolist()
        if last > first:
            self._kept.append(KeptRows.of(block, self._drawn[first:last] - self._seen))
        self._seen = end

    @property
    def kept(self) -> KeptRows:
        """The sample, in the order of the files."""
        return KeptRows.joined(self._kept)
