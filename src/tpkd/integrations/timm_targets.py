"""The soft targets of timm's `Mixup` and `FastCollateMixup`: as labels of one loss, or as two labels with weights."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tpkd.errors import InputError
from tpkd.geometry.correct import MIN_INCORRECT
from tpkd.objectives.base import Objective
from tpkd.objectives.reduction import IGNORE_INDEX

_SUM_TOLERANCE = 1e-2
"""Mixup takes 1 - weight in the dtype of the images: in half precision the sums are off by its rounding."""


@dataclass(frozen=True)
class MixedLabels:
    """The two labels of every mixed image and what each weighs."""

    labels: Int[Tensor, "2 N"]
    """The heavier one first; the second is -100 where a row has only one, and both where it has none."""
    weights: Float[Tensor, "2 N"]
    """The entries of the targets, as they are."""


def recover_labels(targets: Float[Tensor, "N K"]) -> MixedLabels:
    """Both hard labels and their weights from the soft targets of timm's `Mixup` and `FastCollateMixup`.

    A row of such targets is w e_a + (1 - w) e_b for the label a of an image, the label b of the one mixed into it, and
    the weight w that mixup draws or CutMix measures: its two entries are all there is to know, in every mode of mixing.
    Equal labels or w = 1 leave one entry. With two classes smoothing cannot be told from mixing, and is the same thing.

    Raises:
        InputError: a row is not such a mixture: labels were smoothed, or there are more than two.

    Example:
        >>> mixed = recover_labels(torch.tensor([[0.0, 0.25, 0.75], [1.0, 0.0, 0.0]]))
        >>> mixed.labels.tolist(), mixed.weights.tolist()
        ([[2, 0], [1, -100]], [[0.75, 1.0], [0.25, 0.0]])
    """
    check_targets(targets)
    several = targets.count_nonzero(-1) > 2
    if several.any():
        row = int(several.int().argmax())
        found = f"{int(targets[row].count_nonzero())} entries"
        raise InputError(
            f'targets: row {row}: expected the weights of at most two labels, got {found}: use mixed="set"'
        )
    weights, labels = targets.topk(2, dim=-1)
    return MixedLabels(torch.where(weights > 0, labels, IGNORE_INDEX).T, weights.T)


def as_soft_labels(targets: Float[Tensor, "N K"]) -> Float[Tensor, "N K"]:
    """Targets with sums of one: timm rounds the weights of a mixture to the precision of the images.

    Example:
        >>> as_soft_labels(torch.tensor([[0.25, 0.7539, 0.0], [0.0, 0.0, 0.0]], dtype=torch.bfloat16))
        tensor([[0.2490, 0.7510, 0.0000],
                [0.0000, 0.0000, 0.0000]])
    """
    shares = targets.detach().to(torch.promote_types(targets.dtype, torch.float32))
    sums = shares.sum(-1, keepdim=True)
    return torch.where(sums == 0, shares, shares / sums)


def check_targets(targets: Tensor) -> None:
    """Refuse what is not the soft targets of mixed images: other shapes and sums, and smoothed labels.

    Raises:
        InputError: the first such row, and what to do about it.

    Example:
        >>> check_targets(torch.tensor([[0.25, 0.75, 0.0]]))
        >>> check_targets(torch.tensor([[0.925, 0.025, 0.025, 0.025]]))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: targets: row 0: expected labels, got labels smoothed by 0.1, which ... --smoothing 0 ...
    """
    if targets.ndim != 2 or targets.shape[1] < 2 or not targets.is_floating_point():
        found = f"{targets.dtype} of shape {tuple(targets.shape)}"
        raise InputError(f"targets: expected classes (N,) or the floating targets (N, K) of timm's Mixup, got {found}")
    floor = targets.amin(-1, keepdim=True)
    smoothed = (floor.squeeze(-1) > 0) & ((targets > floor).sum(-1) <= 2) & (targets.shape[1] > 2)
    sums = targets.sum(-1, dtype=torch.promote_types(targets.dtype, torch.float32))
    is_mixture = (floor.squeeze(-1) >= 0) & (((sums - 1).abs() <= _SUM_TOLERANCE) | (sums == 0)) & ~smoothed
    if not is_mixture.all():
        row = int((~is_mixture).int().argmax())
        raise InputError(f"targets: row {row}: {_problem(targets[row], bool(smoothed[row]))}")


def check_set(objective: Objective, targets: Float[Tensor, "N K"]) -> None:
    """Refuse mixed labels as one set where the objective is not defined for it, with what to do.

    Raises:
        InputError: the objective takes no soft labels, or a mixture leaves fewer than two incorrect classes.

    Example:
        >>> from tpkd.objectives.registry import create
        >>> check_set(create("dkd"), torch.tensor([[0.25, 0.75, 0.0]]))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: objective 'dkd' takes no soft labels, as those of mixup and CutMix: set mixed="sum" ...
    """
    if not objective.takes_soft_labels:
        raise InputError(no_set(objective))
    too_few = ((targets == 0).sum(-1) < MIN_INCORRECT) & (objective.min_classes > 2)
    if too_few.any():
        row = int(too_few.int().argmax())
        found = f"a mixture that leaves {int((targets[row] == 0).sum())} of {targets.shape[1]}"
        raise InputError(
            f"targets: row {row}: expected at least {MIN_INCORRECT} classes without weight, whose relations objective "
            f'{objective.name!r} learns, got {found}: set mixed="sum", or train without mixup and CutMix'
        )


def no_set(objective: Objective) -> str:
    """What to do about mixed images with an objective that takes one label per image.

    Example:
        >>> from tpkd.objectives.registry import create
        >>> no_set(create("dkd"))[:60]
        "objective 'dkd' takes no soft labels, as those of mixup and "
    """
    return (
        f'objective {objective.name!r} takes no soft labels, as those of mixup and CutMix: set mixed="sum" for the '
        "weighted sum of its losses with each label, use an objective that does, such as tpkd or kd, or train without "
        "mixup and CutMix"
    )


def _problem(row: Float[Tensor, "K"], smoothed: bool) -> str:
    """What is wrong with a row of targets, and what to do about it."""
    if smoothed:
        return (
            f"expected labels, got labels smoothed by {float(row.amin()) * len(row):.3g}, which name no class to "
            "protect: use Mixup(label_smoothing=0.0), --smoothing 0 in timm's script"
        )
    return (
        f"expected the weights of labels, nonnegative with sum 1, got {int(row.count_nonzero())} entries with sum "
        f"{float(row.sum()):.3g}: use classes, or timm's Mixup on them"
    )
