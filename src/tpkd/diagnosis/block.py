"""A block of examples and everything that the theory says about them."""

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from torch import Tensor

from tpkd.diagnosis.soft_labels import main_class
from tpkd.geometry.top_k import TopK
from tpkd.theory.diagnosis import Diagnosis, diagnose_pair, diagnose_truncated_pair
from tpkd.theory.pair import Pair, split_pair
from tpkd.theory.truncated import split_truncated


@dataclass(frozen=True)
class Block:
    """Examples as they were read, split, and diagnosed."""

    rows: Tensor
    """Their numbers in the files."""
    student: Tensor
    teacher: Tensor | TopK
    labels: Tensor
    """Classes, or probabilities of all classes."""
    classes: Tensor
    """The label, or the class with the largest share."""
    pair: Pair
    """With a truncated teacher, the one that the student completes."""
    state: Diagnosis

    @property  # not cached: a block that holds itself would be freed by the garbage collector alone, late
    def known(self) -> "Block":
        """The examples that say something about the whole teacher: all, unless a truncated one lacks some labels."""
        known = self.state.label_known
        return self if known is None or known.all() else choose_rows(self, known)


def diagnose_block(
    rows: Tensor, student: Tensor, teacher: Tensor | TopK, labels: Tensor, *, beta: float, temperature: float
) -> Block:
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
    return Block(rows, student, teacher, labels, main_class(labels), pair, state)


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
