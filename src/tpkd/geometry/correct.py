"""The correct classes of an example: one label, a set of classes, or a soft label whose support is the set.

Every function of the geometry takes `labels` in one of three forms: classes `(*batch)`, a mask of correct classes
`(*batch, K)`, or probabilities `(*batch, K)`. Inside, incorrect classes always stand in `K - 1` places, in class order:
with one label these are all of them; with a set of m, the last m - 1 places are empty and hold a fill value. So a set
of one class runs through the same numbers in the same order as a label, and gives the same bits.
"""

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from tpkd.geometry.inputs import (
    can_read_values,
    check_labels,
    check_logits,
    check_same_shape,
    class_indices,
    computation_dtype,
    first_place,
)

MIN_INCORRECT = 2
"""Incorrect classes below which a teacher has no relations among them to pass on."""


def is_set(labels: Shaped[Tensor, "..."]) -> bool:
    """Whether labels name a set of correct classes, as a mask or by probabilities, rather than one class each.

    Example:
        >>> is_set(torch.tensor([2])), is_set(torch.tensor([[0.5, 0.5, 0.0, 0.0]]))
        (False, True)
    """
    return isinstance(labels, Tensor) and (labels.dtype == torch.bool or labels.is_floating_point())


def correct_mask(labels: Shaped[Tensor, "..."], num_classes: int) -> Bool[Tensor, "*batch K"]:
    """Which classes are correct, whatever the form of the labels.

    Example:
        >>> correct_mask(torch.tensor([1]), 3), correct_mask(torch.tensor([[0.5, 0.5, 0.0]]), 3)
        (tensor([[False,  True, False]]), tensor([[ True,  True, False]]))
    """
    if not is_set(labels):
        return torch.arange(num_classes, device=labels.device) == class_indices(labels).unsqueeze(-1)
    return labels if labels.dtype == torch.bool else labels > 0


def num_correct(labels: Shaped[Tensor, "..."]) -> int | Int[Tensor, "*batch"]:
    """m, the number of correct classes: the number 1 for labels, one count per example for sets.

    Example:
        >>> num_correct(torch.tensor([1])), num_correct(torch.tensor([[0.5, 0.5, 0.0]]))
        (1, tensor([2]))
    """
    return correct_mask(labels, 0).sum(-1) if is_set(labels) else 1


def target_entry(values: Float[Tensor, "*batch K"], labels: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """The coordinate of the correct class.

    Example:
        >>> target_entry(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([1]))
        tensor([2.])
    """
    return values.gather(-1, class_indices(labels).unsqueeze(-1)).squeeze(-1)


def least_correct(values: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."]) -> Float[Tensor, "*batch"]:
    """The smallest coordinate of the correct classes.

    Example:
        >>> least_correct(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[True, True, False]]))
        tensor([1.])
    """
    if not is_set(labels):
        return target_entry(values, labels)
    return values.masked_fill(~correct_mask(labels, values.shape[-1]), torch.inf).amin(-1)


def largest_correct(values: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."]) -> Float[Tensor, "*batch"]:
    """The largest coordinate of the correct classes.

    Example:
        >>> largest_correct(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[True, True, False]]))
        tensor([2.])
    """
    return -least_correct(-values, labels)


def drop_target(
    values: Float[Tensor, "*batch K"], labels: Shaped[Tensor, "..."], *, fill: float = -torch.inf
) -> Float[Tensor, "*batch K-1"]:
    """The coordinates of the incorrect classes, in class order; with a set of m, then `fill` in m - 1 places.

    Example:
        >>> drop_target(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([1]))
        tensor([[1., 3.]])
        >>> drop_target(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.tensor([[True, False, True, False]]), fill=0.0)
        tensor([[2., 4., 0.]])
    """
    if is_set(labels):
        mask = correct_mask(labels, values.shape[-1]).expand(values.shape)
        kept = values.masked_fill(mask, fill)
        return torch.empty_like(kept).scatter(-1, _places(mask), kept)[..., :-1]
    before = torch.arange(values.shape[-1] - 1, device=values.device) < class_indices(labels).unsqueeze(-1)
    # A select between two views runs at memory speed; a gather would build a long index for every entry.
    return torch.where(before, values[..., :-1], values[..., 1:])


def insert_target(
    others: Float[Tensor, "*batch others"], target: Float[Tensor, "*batch"], labels: Shaped[Tensor, "..."]
) -> Float[Tensor, "*batch others+1"]:
    """The inverse of `drop_target`: put `target` back at the correct classes.

    Example:
        >>> insert_target(torch.tensor([[1.0, 3.0]]), torch.tensor([2.0]), torch.tensor([1]))
        tensor([[1., 2., 3.]])
        >>> insert_target(torch.tensor([[2.0, 4.0, 0.0]]), torch.tensor([9.0]), torch.tensor([[True, False] * 2]))
        tensor([[9., 2., 9., 4.]])
    """
    padded = torch.cat([others, target.unsqueeze(-1)], dim=-1)
    if is_set(labels):
        mask = correct_mask(labels, padded.shape[-1]).expand(padded.shape)
        return torch.where(mask, target.unsqueeze(-1), padded.gather(-1, _places(mask)))
    classes = torch.arange(padded.shape[-1], device=others.device)
    label = class_indices(labels).unsqueeze(-1)
    source = torch.where(classes == label, others.shape[-1], classes - (classes > label).long())
    return padded.gather(-1, source)


def as_wide(
    others: Float[Tensor, "*batch others"], labels: Shaped[Tensor, "..."], fill: float
) -> Float[Tensor, "*batch wide"]:
    """What a public function returns for the incorrect classes: K-1 wide for labels, K wide for sets.

    Example:
        >>> as_wide(torch.tensor([[2.0, 4.0, 0.0]]), torch.tensor([[True, False] * 2]), torch.inf)
        tensor([[inf, 2., inf, 4.]])
    """
    if not is_set(labels):
        return others
    return insert_target(others, torch.full_like(others[..., 0], fill), labels)


def over_batch(labels: Shaped[Tensor, "..."], batch_shape: torch.Size) -> Shaped[Tensor, "..."]:
    """Labels of any form, expanded to a larger batch, as where a grid stands in front of it.

    Example:
        >>> over_batch(torch.tensor([[True, False, False]]), torch.Size([4, 1])).shape
        torch.Size([4, 1, 3])
    """
    return labels.expand(*batch_shape, labels.shape[-1]) if is_set(labels) else labels.expand(batch_shape)


def _places(mask: Bool[Tensor, "*batch K"]) -> Int[Tensor, "*batch K"]:
    """Where each class goes: the incorrect ones to the front, the correct ones behind, both in class order."""
    incorrect = (~mask).long().cumsum(-1)
    return torch.where(mask, incorrect[..., -1:] + mask.long().cumsum(-1), incorrect) - 1


def check_correct(
    labels: Tensor | None,
    logits_shape: torch.Size,
    *,
    masks: bool = False,
    probabilities: bool = True,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """Refuse labels that do not fit logits `(*batch, K)`; return classes in int64, a mask, or normalised probabilities.

    Args:
        labels: classes `(*batch)`, or a mask or probabilities `(*batch, K)`.
        logits_shape: `(*batch, K)`.
        masks: whether a bare set will do; what needs the label loss needs to know how much each class weighs.
        probabilities: whether soft labels will do.
        dtype: that of returned probabilities.

    Example:
        >>> check_correct(torch.tensor([2, 0], dtype=torch.uint8), torch.Size([2, 3]))
        tensor([2, 0])
        >>> check_correct(torch.tensor([[0.2, 0.8, 0.0, 0.0]]), torch.Size([1, 4]), dtype=torch.float32)
        tensor([[0.2000, 0.8000, 0.0000, 0.0000]])
    """
    is_mask = isinstance(labels, Tensor) and labels.dtype == torch.bool and labels.shape == logits_shape
    if is_mask and masks:
        assert labels is not None
        check_support(labels)
        return labels
    if isinstance(labels, Tensor) and labels.is_floating_point() and probabilities:
        shares, _ = normalised_probabilities(labels, logits_shape, dtype)
        check_support(shares > 0)
        return shares
    if is_mask:
        raise ValueError(
            "labels: expected class indices or probabilities, got a mask of correct classes, which does not say how "
            "much each of them weighs: pass mask / mask.sum(-1, keepdim=True)"
        )
    return check_labels(labels, logits_shape[:-1], logits_shape[-1])


def normalised_probabilities(
    labels: Float[Tensor, "*batch K"], logits_shape: torch.Size, dtype: torch.dtype, *, zero_rows: bool = False
) -> tuple[Float[Tensor, "*batch K"], Bool[Tensor, "*batch"]]:
    """Soft labels divided by their sums, which rounding leaves near one, and which rows are not all zero.

    Rows must be nonnegative and sum to one: within 1e-4, or 1e-2 in half precision. Where values cannot be read for
    free, as on an accelerator, they are not looked at.

    Example:
        >>> normalised_probabilities(torch.tensor([[0.4, 0.60005]]), torch.Size([1, 2]), torch.float32)
        (tensor([[0.4000, 0.6000]]), tensor([True]))
    """
    if labels.shape != logits_shape:
        raise ValueError(
            f"labels: expected probabilities of the shape of the logits {tuple(logits_shape)}, got {labels.dtype} of "
            f"shape {tuple(labels.shape)}; for classes pass labels.long()"
        )
    shares = labels.detach().to(torch.promote_types(dtype, torch.float32))
    sums = shares.sum(-1, keepdim=True)
    valid = (shares != 0).any(-1)
    if can_read_values(labels):
        tolerance = sum_tolerance(labels.dtype)
        wrong = ~((shares >= 0).all(-1) & ((sums.squeeze(-1) - 1).abs() <= tolerance))
        if zero_rows:
            wrong = wrong & valid
        if wrong.any():
            _refuse_probabilities(shares, wrong, zero_rows)
    return torch.where(valid.unsqueeze(-1), shares / sums, 0.0), valid


def sum_tolerance(dtype: torch.dtype) -> float:
    """How far the sum of a row of probabilities may be from one.

    Example:
        >>> sum_tolerance(torch.bfloat16)
        0.01
    """
    return 1e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-4


def _refuse_probabilities(shares: Tensor, wrong: Tensor, zero_rows: bool) -> None:
    row = shares[tuple(wrong.nonzero()[0].tolist())]
    ignored = " or all zero, to be ignored" if zero_rows else ""
    raise ValueError(
        f"labels: expected probabilities, nonnegative with sum 1{ignored}, got a row with least entry "
        f"{row.amin().item():g} and sum {row.sum().item():g} at {first_place(wrong)}"
    )


def check_support(mask: Bool[Tensor, "*batch K"]) -> None:
    """Refuse sets that are empty or leave fewer than two incorrect classes, where looking is free.

    Example:
        >>> check_support(torch.tensor([[True, True, False]]))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        ValueError: labels: expected at least 2 classes outside the support of each row, got 1 at row 0...
    """
    if not can_read_values(mask):
        return
    if not (valid := mask.any(-1)).all():
        raise ValueError(f"labels: expected at least one correct class, got none at {first_place(~valid)}")
    incorrect = (~mask).sum(-1)
    wrong = incorrect < MIN_INCORRECT
    if wrong.any():
        raise ValueError(too_few_incorrect(int(incorrect[wrong][0]), first_place(wrong)))


def too_few_incorrect(count: int, place: str) -> str:
    """What to do about a soft label that leaves nothing to learn a relation of.

    Example:
        >>> too_few_incorrect(0, "row 3")[:88]
        'labels: expected at least 2 classes outside the support of each row, got 0 at row 3; lab'
    """
    return (
        f"labels: expected at least {MIN_INCORRECT} classes outside the support of each row, got {count} at {place}; "
        "label smoothing gives every class mass and leaves no relation among incorrect classes to learn: drop it, or "
        "smooth the teacher instead"
    )


def one_class(statement: str, labels: Tensor | None, logits_shape: torch.Size) -> Int[Tensor, "*batch"]:
    """Labels as classes, for a statement that holds for one correct class only; sets of several are refused by name.

    Example:
        >>> one_class("a statement", torch.tensor([[0.0, 1.0, 0.0]]), torch.Size([1, 3]))
        tensor([1])
        >>> one_class("a statement", torch.tensor([[0.5, 0.5, 0.0, 0.0]]), torch.Size([1, 4]))
        Traceback (most recent call last):
            ...
        ValueError: labels: a statement is stated for one correct class, got 2 correct classes at row 0
    """
    checked = check_correct(labels, logits_shape, masks=True)
    if not is_set(checked):
        return checked
    counts = correct_mask(checked, logits_shape[-1]).sum(-1)
    several = counts != 1
    if several.any():
        found = f"{int(counts[several][0])} correct classes at {first_place(several)}"
        raise ValueError(f"labels: {statement} is stated for one correct class, got {found}")
    return correct_mask(checked, logits_shape[-1]).long().argmax(-1)


def check_pair(
    student_logits: Tensor, teacher_logits: Tensor, labels: Tensor, *, masks: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Check a student, its teacher and its correct classes, classes last; return them in the dtype to compute in."""
    check_logits("student_logits", student_logits)
    check_logits("teacher_logits", teacher_logits)
    check_same_shape(student_logits, teacher_logits)
    dtype = computation_dtype(student_logits, teacher_logits)
    labels = check_correct(labels, student_logits.shape, masks=masks, dtype=dtype)
    return student_logits.to(dtype), teacher_logits.detach().to(dtype), labels


def check_single(name: str, values: Tensor, labels: Tensor, *, masks: bool = True) -> tuple[Tensor, Tensor]:
    """Check one class-wide tensor and its correct classes; return them in the dtype to compute in."""
    check_logits(name, values)
    dtype = computation_dtype(values)
    return values.to(dtype), check_correct(labels, values.shape, masks=masks, dtype=dtype)
