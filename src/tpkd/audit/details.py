"""What the theory says about each example, as the columns of the gallery and of its details."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tpkd.audit.packing import class_type
from tpkd.diagnosis.block import SplitBlock
from tpkd.geometry import directions, margins
from tpkd.geometry.correct import insert_target
from tpkd.theory.frontier import frontier

SHOWN_CLASSES = 8
"""Classes in the details of an example: the label, the one that sets the price, and those with most probability."""
FRONTIER_POINTS = 13
"""Budgets from nothing to the price at which V(B) is drawn: shares i² / 12² of it, because V falls fastest at first."""
SCALARS = (
    *("confidence", "teacher_confidence", "label_loss", "imitation_loss", "conditional_loss", "transfer_cost"),
    *("min_confidence", "compensation", "retention", "update_cosine", "margin", "teacher_margin"),
)
"""Numbers of an example, in the order of the column `scalars` of its chunk."""
CLASS_FIELDS = (
    *("log_student", "log_teacher", "student_share", "teacher_share", "log_ratio"),
    *("conditional", "safe", "clipped", "update"),
)
"""Numbers of each shown class, in the order of the column `fields`: log p, log t, r, q, log(q/r), u, d, lambda and v.
Shares and ratio are 0 at the label."""


def least_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """By how much the label is ahead of its nearest competitor, in nats; negative where the answer is wrong.

    Example:
        >>> least_margin(torch.tensor([[2.0, 0.5, 1.0]]), torch.tensor([0]))
        tensor([1.])
    """
    return margins(logits, labels).amin(-1)


def index_columns(block: SplitBlock) -> dict[str, np.ndarray]:
    """What the gallery filters and sorts a student's examples by: single precision is enough for an order.

    Shapes: every column is `(rows,)`.
    """
    assert isinstance(block.teacher, Tensor)
    state, kind = block.state, class_type(block.student.shape[-1])
    single = {
        "confidence": state.confidence,
        "conditional_loss": state.conditional_loss,
        "transfer_cost": state.transfer_cost,
        "imitation_loss": state.imitation_loss,
        "margin": least_margin(block.student, block.labels),
    }
    return {
        "answer": block.student.argmax(-1).numpy().astype(kind),
        "blocked": state.blocked.numpy().astype(np.uint8),
        **{name: values.numpy().astype(np.float32) for name, values in single.items()},
    }


def teacher_columns(block: SplitBlock) -> dict[str, np.ndarray]:
    """What the gallery knows of examples whoever the student is."""
    assert isinstance(block.teacher, Tensor)
    kind = class_type(block.student.shape[-1])
    return {
        "label": block.labels.numpy().astype(kind),
        "teacher_answer": block.teacher.argmax(-1).numpy().astype(kind),
        "teacher_confidence": block.state.teacher_confidence.numpy().astype(np.float32),
    }


def detail_columns(block: SplitBlock, *, beta: float) -> dict[str, Any]:
    """Everything that is shown of an opened example, in double precision.

    Shapes: `scalars` `(rows, len(SCALARS))`, `classes` `(rows, shown)`, the label first, `fields`
    `(rows, len(CLASS_FIELDS), shown)` and `frontier` `(rows, FRONTIER_POINTS)`.
    """
    z, zt, y = block.student, block.teacher, block.labels
    assert isinstance(zt, Tensor)
    log_student, log_teacher = z.log_softmax(-1), zt.log_softmax(-1)
    zero, pair = torch.zeros_like(block.state.transfer_cost), block.pair
    shares = (insert_target(each.log_conditional.exp(), zero, y) for each in (pair.student, pair.teacher))
    log_ratio = insert_target(pair.log_ratio, zero, y)
    classes = _classes_that_matter(log_student, log_teacher, log_ratio, y)
    step = directions(z, zt, y, beta=beta)
    pushes = (step.conditional, step.safe, step.clipped_mass, step.update)
    wide = (log_student, log_teacher, *shares, log_ratio, *pushes)
    scalars = {name: getattr(block.state, name) for name in SCALARS if not name.endswith("margin")}
    scalars |= {"margin": least_margin(z, y), "teacher_margin": least_margin(zt, y)}
    return {
        "scalars": torch.stack([scalars[name] for name in SCALARS], -1).numpy(),
        "classes": classes.numpy().astype(class_type(z.shape[-1])),
        "fields": torch.stack([each.gather(-1, classes) for each in wide], -2).numpy(),
        "frontier": _frontier_values(z, zt, y, block.state.transfer_cost).numpy(),
    }


def _frontier_values(student: Tensor, teacher: Tensor, labels: Tensor, cost: Tensor) -> Tensor:
    """V(B) of each row from nothing to its own price, `(rows, FRONTIER_POINTS)`."""
    shares = torch.linspace(0, 1, FRONTIER_POINTS, dtype=torch.float64).square().unsqueeze(-1)
    # A few rows at a time: what the budgets multiply stays in the processor's cache, which takes half of the time.
    rows = max(1, 2**18 // (FRONTIER_POINTS * student.shape[-1]))
    parts = (slice(start, start + rows) for start in range(0, len(cost), rows))
    return torch.cat([frontier(student[p], teacher[p], labels[p], shares * cost[p]).value.T for p in parts])


def _classes_that_matter(log_student: Tensor, log_teacher: Tensor, log_ratio: Tensor, labels: Tensor) -> Tensor:
    """The label, then the others by the larger of the two probabilities; the one that sets the price is among them."""
    rank = log_student.maximum(log_teacher)
    count, rows = min(SHOWN_CLASSES, rank.shape[-1]), torch.arange(len(rank))
    rank[rows, labels] = torch.inf
    shown = rank.topk(count, -1).indices
    setter = log_ratio.scatter(-1, labels.unsqueeze(-1), -torch.inf).argmax(-1, keepdim=True)
    last = torch.where((shown == setter).any(-1, keepdim=True), shown[:, -1:], setter)
    return torch.cat([shown[:, :-1], last], -1)
