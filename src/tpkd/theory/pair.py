"""A student and its teacher, both split at the label: what every statement about one output starts from."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpkd.geometry.correct import check_pair
from tpkd.geometry.divergences import log_ratio
from tpkd.geometry.split import Split, split_checked


@dataclass(frozen=True)
class Pair:
    """Both predictions in log space, and how they differ over the incorrect classes."""

    student: Split
    teacher: Split
    labels: Int[Tensor, "*batch"]
    log_ratio: Float[Tensor, "*batch others"]
    """log(q_j / r_j): positive where the student underestimates class j, 0 where both rule it out."""


def split_pair(
    student_logits: Float[Tensor, "*batch K"], teacher_logits: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]
) -> Pair:
    """Check and split a student and its teacher, once for all statements about them.

    A class that both rule out, by a logit of -inf, counts as if it were not there.

    Example:
        >>> pair = split_pair(torch.zeros(1, 3), torch.zeros(1, 3), torch.tensor([0]))
        >>> pair.log_ratio
        tensor([[0., 0.]])
    """
    z, zt, y = check_pair(student_logits, teacher_logits, labels)
    student, teacher = split_checked(z, y), split_checked(zt, y)
    return Pair(student, teacher, y, log_ratio(teacher.log_conditional, student.log_conditional))


def first_place(is_there: Bool[Tensor, "*batch"]) -> str:
    """The first true position in a batch, for a message.

    Example:
        >>> first_place(torch.tensor([False, True])), first_place(torch.tensor([[False, True]]))
        ('row 1', 'position (0, 1)')
    """
    index = is_there.nonzero()[0].tolist()
    return f"row {index[0]}" if len(index) == 1 else f"position {tuple(index)}"


def as_grid(
    name: str, value: float | Tensor, like: Float[Tensor, "*batch"], *, low: float, high: float | None = None
) -> Float[Tensor, "*grid 1"]:
    """A number, or a tensor that broadcasts against the batch shape, checked and given an axis for the classes.

    Without `high` any finite number will do.

    Example:
        >>> as_grid("position", 0.5, torch.zeros(4), low=0.0, high=1.0)
        tensor([0.5000])
    """
    grid = torch.as_tensor(value, dtype=like.dtype, device=like.device)
    outside = ~((grid >= low) & (grid <= (torch.finfo(grid.dtype).max if high is None else high)))
    if outside.any():
        expected = f"finite numbers from {low:g} on" if high is None else f"numbers from {low:g} to {high:g}"
        raise ValueError(f"{name}: expected {expected}, got {grid[outside][0].item():g}")
    sizes = zip(reversed(grid.shape), reversed(like.shape), strict=False)
    if any(1 not in (a, b) and a != b for a, b in sizes):
        raise ValueError(
            f"{name}: expected a number or a shape that broadcasts against the batch {tuple(like.shape)}, "
            f"got {tuple(grid.shape)}"
        )
    return grid.unsqueeze(-1)
