"""A block of examples and everything that the theory says about them."""

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Self, cast

import torch
from torch import Tensor

from tpkd.diagnosis.soft_labels import main_class
from tpkd.geometry.divergences import binary_kl_divergence, kl_divergence
from tpkd.geometry.top_k import TopK
from tpkd.theory.diagnosis import Diagnosis, diagnose_pair, diagnose_truncated_pair
from tpkd.theory.pair import Pair, split_pair
from tpkd.theory.truncated import split_truncated


@dataclass(frozen=True)
class Parts:
    """What KL(t || p) of each example is the sum of."""

    confidence: Tensor
    """kl(tau || rho)."""
    conditional: Tensor
    """(1 - tau) KL(q || r)."""
    inside: Tensor
    """What differs among the correct classes of a soft label."""


@dataclass(frozen=True)
class Block:
    """Examples as they were read, and diagnosed."""

    rows: Tensor
    """Their numbers in the files."""
    student: Tensor
    teacher: Tensor | TopK
    labels: Tensor
    """Classes, or probabilities of all classes."""
    classes: Tensor
    """The label, or the class with the largest share."""
    answers: Tensor
    """The student's most probable class, the first of equal ones."""
    teacher_answers: Tensor
    """The teacher's; of a truncated one, the first of the largest that it kept."""
    state: Diagnosis
    parts: Parts

    @property  # not cached: a block that holds itself would be freed by the garbage collector alone, late
    def known(self) -> Self:
        """The examples that say something about the whole teacher: all, unless a truncated one lacks some labels."""
        known = self.state.label_known
        return self if known is None or known.all() else cast(Self, choose_rows(self, known))


@dataclass(frozen=True)
class SplitBlock(Block):
    """A block with both predictions split at the correct classes."""

    pair: Pair
    """With a truncated teacher, the one that the student completes."""


def diagnose_block(
    rows: Tensor, student: Tensor, teacher: Tensor | TopK, labels: Tensor, *, beta: float, temperature: float
) -> SplitBlock:
    """Diagnose examples whose values were looked at; `rows` are their numbers in the files.

    Example:
        >>> import torch
        >>> rows, z, labels = torch.tensor([7]), torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0])
        >>> block = diagnose_block(rows, z, torch.zeros(1, 3), labels, beta=0.5, temperature=1.0)
        >>> block.rows, block.state.blocked
        (tensor([7]), tensor([True]))
    """
    if isinstance(teacher, TopK):
        cut = split_truncated(student, teacher, labels)
        pair, state = cut.pair, diagnose_truncated_pair(cut, beta=beta, temperature=temperature)
    else:
        pair = split_pair(student, teacher, labels, masks=False)
        state = diagnose_pair(pair, beta=beta, temperature=temperature)
    return SplitBlock(
        rows,
        student,
        teacher,
        labels,
        classes=main_class(labels),
        answers=student.argmax(-1),
        teacher_answers=_answers(teacher),
        state=state,
        parts=_parts(pair, state),
        pair=pair,
    )


def _parts(pair: Pair, state: Diagnosis) -> Parts:
    inside = torch.zeros_like(pair.student.log_odds)
    if pair.inside is not None:
        inside = pair.teacher.log_confidence.exp() * kl_divergence(pair.inside.teacher, pair.inside.student)
    confidence = binary_kl_divergence(pair.teacher.log_odds, pair.student.log_odds)
    return Parts(confidence, pair.teacher.log_residual.exp() * state.conditional_loss, inside)


def _answers(teacher: Tensor | TopK) -> Tensor:
    """The most probable class of each row; of a truncated teacher the first of the largest that it kept."""
    if not isinstance(teacher, TopK):
        return teacher.argmax(-1)
    log_probs = teacher.log_probs.float().masked_fill(teacher.indices < 0, -torch.inf)
    # Kept classes come largest first from our cache: of those that rounding made equal, the first is the larger.
    first = (log_probs == log_probs.amax(-1, keepdim=True)).long().argmax(-1, keepdim=True)
    return teacher.indices.gather(-1, first).squeeze(-1)


def choose_rows(part: Any, chosen: Tensor | slice) -> Any:
    """The chosen rows of every tensor of a record, and of the records in it.

    Example:
        >>> import torch
        >>> choose_rows(torch.tensor([3, 4, 5]), slice(1, 3))
        tensor([4, 5])
    """
    if isinstance(part, Tensor):
        return part[chosen]
    if is_dataclass(part) and not isinstance(part, type):
        return replace(part, **{each.name: choose_rows(getattr(part, each.name), chosen) for each in fields(part)})
    return part
