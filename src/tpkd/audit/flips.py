"""Two students on the same examples: answers lost and won, margins gained and lost, and whether that is chance."""

import math
from statistics import NormalDist

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from tpkd.audit.record import ClassFlips, Flips
from tpkd.errors import extra
from tpkd.geometry import margins
from tpkd.quality.sampling import CONFIDENCE_LEVEL, difference_interval


def mcnemar_p_value(lost: int, won: int) -> float:
    """McNemar's exact test, two-sided: a fair coin decides each answer that only one of two students has right.

    Example:
        >>> mcnemar_p_value(0, 5), mcnemar_p_value(0, 0)
        (0.0625, 1.0)
    """
    if not lost + won:
        return 1.0
    with extra("report"):
        from scipy.stats import binomtest
    return float(binomtest(min(lost, won), lost + won).pvalue)


class MarginCount:
    """How many of all margins of two students are lower after than before."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.lowered, self.total = 0, 0

    def add(
        self, before: Float[Tensor, "rows K"], after: Float[Tensor, "rows K"], labels: Int[Tensor, " rows"]
    ) -> None:
        """Count a block of logits.

        Example:
            >>> import torch
            >>> count = MarginCount()
            >>> before, after = torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([[3.0, 1.5, 1.5]])
            >>> count.add(before, after, torch.tensor([0]))
            >>> count.share
            0.5
        """
        change = margins(after, labels) - margins(before, labels)
        self.lowered += int((change < 0).sum())
        self.total += change.numel()

    @property
    def share(self) -> float:
        """Lowered ones among all."""
        return self.lowered / self.total


def compare_answers(
    pair: tuple[int, int],
    labels: Int[np.ndarray, " rows"],
    answers: tuple[Int[np.ndarray, " rows"], Int[np.ndarray, " rows"]],
    least_margins: tuple[Float[np.ndarray, " rows"], Float[np.ndarray, " rows"]],
    *,
    margins_lowered: float,
    num_classes: int,
) -> Flips:
    """Everything about two students, from their answers and least margins.

    Args:
        pair: the numbers of the students, before and after.
        labels: of the examples.
        answers: the most probable classes of both.
        least_margins: of both, in nats.
        margins_lowered: share of all margins that are lower after, from `MarginCount`.
        num_classes: K.
    """
    was, became = (each == labels for each in answers)
    change = least_margins[1] - least_margins[0]
    groups = {"kept": was & became, "lost": was & ~became, "won": ~was & became, "missed": ~(was | became)}
    alike = groups["missed"] & (answers[0] == answers[1])
    counts = {name: int(chosen.sum()) for name, chosen in groups.items()}
    moved = became.astype(np.float64) - was
    low, high = difference_interval(moved)
    margin_low, margin_high = _mean_interval(change)
    return Flips(
        before=pair[0],
        after=pair[1],
        kept=counts["kept"],
        lost=counts["lost"],
        won=counts["won"],
        missed_alike=int(alike.sum()),
        missed_differently=counts["missed"] - int(alike.sum()),
        accuracy_change=float(moved.mean()),
        accuracy_low=low,
        accuracy_high=high,
        p_value=mcnemar_p_value(counts["lost"], counts["won"]),
        margin_change=float(change.mean()),
        margin_change_low=margin_low,
        margin_change_high=margin_high,
        least_margins_lowered=int((change < 0).sum()),
        margins_lowered=margins_lowered,
        classes=_by_class(labels, groups, change, num_classes),
    )


def _mean_interval(values: np.ndarray) -> tuple[float | None, float | None]:
    """The normal interval of a mean: a test split has enough examples for it."""
    if len(values) < 2:
        return None, None
    half = NormalDist().inv_cdf((1 + CONFIDENCE_LEVEL) / 2) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return float(values.mean()) - half, float(values.mean()) + half


def _by_class(
    labels: np.ndarray, groups: dict[str, np.ndarray], change: np.ndarray, num_classes: int
) -> tuple[ClassFlips, ...]:
    examples = np.bincount(labels, minlength=num_classes)
    counts = {name: np.bincount(labels[chosen], minlength=num_classes) for name, chosen in groups.items()}
    sums = np.bincount(labels, weights=change, minlength=num_classes)
    return tuple(
        ClassFlips(
            label=label,
            examples=int(examples[label]),
            **{name: int(found[label]) for name, found in counts.items()},
            margin_change=float(sums[label] / examples[label]) if examples[label] else None,
        )
        for label in range(num_classes)
    )
