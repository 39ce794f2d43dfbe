"""A batch of rows on its way into one of the three codes, and what comes out of each."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from tpkd.geometry.top_k import TopK


class Batch(NamedTuple):
    """Rows that were checked, and what is asked of them."""

    student: Float[Tensor, "rows K"]
    teacher: Float[Tensor, "rows K"] | TopK
    labels: Shaped[Tensor, "..."]
    """Classes `(rows,)` or probabilities `(rows, K)`."""
    valid: Bool[Tensor, "rows"] | None
    """Losses and directions of all other rows are zero; `None` where there are none."""
    beta: float
    weight: float
    """What all losses together, and every direction, are multiplied by."""
    wanted: bool
    """Whether there is to be a direction."""
    temperature: float = 1.0
    overwrite: bool = False
    """Whether the direction takes the place of the student."""

    def direction_memory(self) -> Float[Tensor, "rows K"] | None:
        """Where the direction goes: the one buffer of the size of the logits."""
        if not self.wanted or self.overwrite:
            return self.student if self.wanted else None
        return torch.empty_like(self.student, memory_format=torch.contiguous_format)


class Outcome(NamedTuple):
    """What each of the three codes returns."""

    losses: Float[Tensor, "rows"]
    """Of each row; 0 where it is ignored."""
    direction: Float[Tensor, "rows K"] | None
    """`weight` times the direction of each row; `None` unless it is wanted."""
    total: Float[Tensor, ""]
    """`weight` times the sum of all losses."""
    ignored: int = 0
    """Rows that turned out to be ignored: soft labels of zeros. Those that were said to be are not counted."""


def parts_of(teacher: Tensor | TopK) -> tuple[Tensor, *tuple[Tensor | None, ...]]:
    """The tensors of a teacher: its logits alone, or those of a truncated one in the order of its fields.

    Example:
        >>> len(parts_of(torch.zeros(2, 3))), len(parts_of(TopK(torch.zeros(2, 1), torch.tensor([[0], [2]]))))
        (1, 4)
    """
    if not isinstance(teacher, TopK):
        return (teacher,)
    return teacher.log_probs, teacher.indices, teacher.label_log_probs, teacher.rest_log_probs


def unit_stride(logits: Float[Tensor, "rows K"]) -> Float[Tensor, "rows K"]:
    """The same numbers with the classes of a row next to each other.

    Example:
        >>> unit_stride(torch.zeros(3, 2).T).stride()
        (3, 1)
    """
    if logits.is_neg():
        logits = logits.resolve_neg()
    return logits if logits.stride(-1) == 1 else logits.contiguous()
