"""The costliest examples, with the classes that student and teacher confuse them with."""

from pathlib import Path

import torch
from torch import Tensor

from tpkd.diagnosis.ids import read_ids
from tpkd.diagnosis.record import Competitor, ExampleState
from tpkd.diagnosis.totals import KeptRows
from tpkd.geometry import split
from tpkd.geometry.correct import insert_target, is_set
from tpkd.geometry.top_k import TopK, what_is_known
from tpkd.theory import diagnose
from tpkd.theory.truncated import split_truncated

TOP_COMPETITORS = 3
NAMED_CLASSES = 3
"""Correct classes that a soft label is called by."""


def costliest_examples(kept: KeptRows, names: tuple[str, ...], ids: Path | None) -> tuple[ExampleState, ...]:
    """What is said of each of a few examples."""
    state = diagnose(kept.student, kept.teacher, kept.labels)
    rows = kept.rows.tolist()
    student = _competitors(split(kept.student, kept.labels).log_conditional, kept.labels, names)
    teacher = _competitors(_teacher_conditional(kept), kept.labels, names)
    labels, named = _label_names(kept.labels, names), read_ids(ids, rows)
    return tuple(
        ExampleState(
            row=row,
            id=named[row],
            label=label,
            blocked=bool(state.blocked[index]),
            confidence=state.confidence[index].item(),
            teacher_confidence=state.teacher_confidence[index].item(),
            conditional_loss=state.conditional_loss[index].item(),
            transfer_cost=state.transfer_cost[index].item(),
            student_competitors=student[index],
            teacher_competitors=teacher[index],
        )
        for index, (row, label) in enumerate(zip(rows, labels, strict=True))
    )


def _label_names(labels: Tensor, names: tuple[str, ...]) -> list[str]:
    """The name of the label; of a soft one the names of its correct classes, largest share first."""
    if not is_set(labels):
        return [names[label] for label in labels.tolist()]
    found = []
    for shares in labels:
        order = shares.argsort(descending=True, stable=True)[: int((shares > 0).sum())].tolist()
        more = [f"{len(order) - NAMED_CLASSES} more"] if len(order) > NAMED_CLASSES else []
        found.append(" + ".join([*(names[index] for index in order[:NAMED_CLASSES]), *more]))
    return found


def _teacher_conditional(kept: KeptRows) -> Tensor:
    """log q; of a truncated teacher over the kept classes only, as it said nothing about the others."""
    if not isinstance(kept.teacher, TopK):
        return split(kept.teacher, kept.labels).log_conditional
    log_q = split_truncated(kept.student, kept.teacher, kept.labels).pair.teacher.log_conditional
    known = what_is_known(kept.teacher, kept.labels, kept.student.shape[-1], kept.student.dtype)
    wide = insert_target(log_q, torch.full_like(log_q[:, 0], -torch.inf), kept.labels)
    return wide.masked_fill(~known.kept, -torch.inf)


def _competitors(log_conditional: Tensor, labels: Tensor, names: tuple[str, ...]) -> list[tuple[Competitor, ...]]:
    largest = log_conditional.topk(min(TOP_COMPETITORS, log_conditional.shape[-1]))
    classes = largest.indices
    if log_conditional.shape[-1] < len(names):  # the label has no place
        classes = classes + (classes >= labels.unsqueeze(-1))
    found = zip(classes.tolist(), largest.values.tolist(), largest.values.exp().tolist(), strict=True)
    return [
        tuple(
            Competitor(names[index], probability)
            for index, log_probability, probability in zip(*row, strict=True)
            if log_probability > -torch.inf
        )
        for row in found
    ]
