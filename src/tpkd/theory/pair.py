"""A student and its teacher, both split at the correct classes: what every statement about one output starts from."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from tpkd.geometry.correct import as_wide, check_correct, check_pair, correct_mask, is_set, num_correct, over_batch
from tpkd.geometry.divergences import log_ratio
from tpkd.geometry.inputs import computation_dtype
from tpkd.geometry.split import Split, join, log_within, split_checked


@dataclass(frozen=True)
class Inside:
    """Both distributions among the correct classes of a set, -inf at the incorrect ones."""

    student: Float[Tensor, "*batch K"]
    teacher: Float[Tensor, "*batch K"]


@dataclass(frozen=True)
class Pair:
    """Both predictions in log space, and how they differ over the incorrect classes."""

    student: Split
    teacher: Split
    labels: Shaped[Tensor, "..."]
    """Classes `(*batch)`, or a mask or probabilities `(*batch, K)`."""
    log_ratio: Float[Tensor, "*batch others"]
    """log(q_j / r_j): positive where the student underestimates class j, 0 where both rule it out."""
    compared: Float[Tensor, "*batch others"]
    """log r over the classes that the teacher speaks of: all incorrect ones, unless it was truncated."""
    inside: Inside | None = None
    """Among the correct classes, where labels are sets."""


def split_pair(
    student_logits: Float[Tensor, "*batch K"],
    teacher_logits: Float[Tensor, "*batch K"],
    labels: Shaped[Tensor, "..."],
    *,
    masks: bool = True,
) -> Pair:
    """Check and split a student and its teacher, once for all statements about them.

    A class that both rule out, by a logit of -inf, counts as if it were not there. Incorrect classes are in the
    `K - 1` places of `tpkd.geometry.drop_target`. `masks` says whether a bare set of correct classes will do.

    Example:
        >>> pair = split_pair(torch.zeros(1, 3), torch.zeros(1, 3), torch.tensor([0]))
        >>> pair.log_ratio
        tensor([[0., 0.]])
    """
    z, zt, y = check_pair(student_logits, teacher_logits, labels, masks=masks)
    student, teacher = split_checked(z, y), split_checked(zt, y)
    inside = Inside(log_within(z, y), log_within(zt, y)) if is_set(y) else None
    ratio = log_ratio(teacher.log_conditional, student.log_conditional)
    return Pair(student, teacher, y, ratio, student.log_conditional, inside)


def rejoin(
    pair: Pair, log_odds: Float[Tensor, "*grid"], log_conditional: Float[Tensor, "*grid others"]
) -> Float[Tensor, "*grid K"]:
    """Log-probabilities of a prediction with this log-odds and these relations; inside a set, the student's own.

    Example:
        >>> pair = split_pair(torch.zeros(1, 4), torch.zeros(1, 4), torch.tensor([[True, True, False, False]]))
        >>> rejoin(pair, torch.tensor([0.0]), pair.teacher.log_conditional).exp()
        tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """
    labels = over_batch(pair.labels, log_odds.shape)
    log_conditional = as_wide(log_conditional, labels, -torch.inf)
    return join(log_odds, log_conditional, labels, pair.inside.student if pair.inside else None)


def weighed(labels: Shaped[Tensor, "..."], logits: Float[Tensor, "*batch K"]) -> Shaped[Tensor, "..."]:
    """Labels for a statement without a label loss: a bare set of correct classes gets weights, which it never uses.

    Example:
        >>> weighed(torch.tensor([[True, True, False, False]]), torch.zeros(1, 4))
        tensor([[0.5000, 0.5000, 0.0000, 0.0000]])
    """
    if not (isinstance(labels, Tensor) and labels.dtype == torch.bool and labels.shape == logits.shape):
        return labels
    mask = check_correct(labels, logits.shape, masks=True)
    return mask.to(computation_dtype(logits)) / mask.sum(-1, keepdim=True)


def per_count(
    constant: Callable[[int], float], labels: Shaped[Tensor, "..."], like: Tensor
) -> float | Float[Tensor, "*batch"]:
    """A constant of the number m of correct classes: one number for labels, one per example for sets.

    Example:
        >>> per_count(lambda m: 1 / m, torch.tensor([2]), torch.zeros(1))
        1.0
        >>> per_count(lambda m: 1 / m, torch.tensor([[True, True, False, False]]), torch.zeros(1))
        tensor([0.5000])
    """
    counts = num_correct(labels)
    if not isinstance(counts, Tensor):
        return constant(counts)
    # Computed as a Python number and rounded once, as a constant of a label is.
    distinct = sorted(set(counts.flatten().tolist()))
    values = torch.tensor([constant(m) for m in distinct], dtype=like.dtype, device=like.device)
    return values[torch.searchsorted(torch.tensor(distinct, device=counts.device), counts)]


def is_single(labels: Shaped[Tensor, "*batch K"]) -> Bool[Tensor, "*batch"]:
    """Which sets hold one class: there a statement about sets is the paper's own, to the bit.

    Example:
        >>> is_single(torch.tensor([[True, True, False, False], [True, False, False, False]]))
        tensor([False,  True])
    """
    return correct_mask(labels, labels.shape[-1]).sum(-1) == 1


def largest_count(labels: Shaped[Tensor, "..."]) -> int:
    """The largest number of correct classes in a batch, for which a bound holds that falls as the number grows.

    Example:
        >>> largest_count(torch.tensor([2])), largest_count(torch.tensor([[True, True, False, False]]))
        (1, 2)
    """
    counts = num_correct(labels)
    return counts if isinstance(counts, int) else int(counts.max()) if counts.numel() else 1


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
