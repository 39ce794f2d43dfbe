"""What timm's script would train with, held against the objective that takes its place.

The script chooses its loss by flags: `--smoothing` (0.1 unless told otherwise), `--bce-loss`, `--jsd-loss`. A task
with an objective of its own would drop that choice and nothing would look wrong.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from tpkd.errors import InputError, extra
from tpkd.integrations.timm_targets import no_set
from tpkd.objectives.base import Objective
from tpkd.objectives.reduction import IGNORE_INDEX

with extra("vision"):
    from timm.loss import BinaryCrossEntropy, JsdCrossEntropy, LabelSmoothingCrossEntropy, SoftTargetCrossEntropy

_FLAGS = {BinaryCrossEntropy: "--bce-loss", JsdCrossEntropy: "--jsd-loss"}


def check_criterion(criterion: Callable[[Tensor, Tensor], Tensor] | None, objective: str | Objective) -> None:
    """Refuse a loss that the objective does not replace: anything but the plain cross-entropy of labels or mixtures.

    Raises:
        InputError: what would be dropped, and which flag of timm's script to change.

    Example:
        >>> check_criterion(nn.CrossEntropyLoss(), "tpkd")
        >>> check_criterion(LabelSmoothingCrossEntropy(0.1), "tpkd")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: criterion: expected cross-entropy, found labels smoothed by 0.1, which ...
    """
    if isinstance(objective, nn.Module):  # timm's own distillation tasks take their criterion at this place
        found = type(objective).__name__
        raise InputError(
            f"objective: expected a name of tpkd.objectives.names() or an Objective, found {found}: pass the loss of "
            "the script by name, criterion="
        )
    if criterion is None or criterion is functional.cross_entropy or type(criterion) is SoftTargetCrossEntropy:
        return
    smoothing = _smoothing(criterion)
    if smoothing:
        raise InputError(
            f"criterion: expected cross-entropy, found labels smoothed by {smoothing:.3g}, which name no class to "
            "protect: use --smoothing 0 in timm's script, the teacher says how the other classes relate"
        )
    if type(criterion) is LabelSmoothingCrossEntropy:
        return
    problem = _problem(criterion)
    if problem:
        raise InputError(f"criterion: expected cross-entropy, found {problem}")


def check_mixing(criterion: Callable[[Tensor, Tensor], Tensor] | None, objective: Objective) -> None:
    """Refuse an objective without soft labels where the script's loss says that images are mixed.

    timm's script takes `SoftTargetCrossEntropy` exactly when mixup or CutMix is on.

    Raises:
        InputError: what to do.

    Example:
        >>> from tpkd.objectives.registry import create
        >>> check_mixing(SoftTargetCrossEntropy(), create("tpkd"))
        >>> check_mixing(SoftTargetCrossEntropy(), create("dkd"))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: criterion: found SoftTargetCrossEntropy: objective 'dkd' takes no soft labels, ...
    """
    if type(criterion) is SoftTargetCrossEntropy and not objective.takes_soft_labels:
        raise InputError(f"criterion: found SoftTargetCrossEntropy: {no_set(objective)}")


def _smoothing(criterion: Any) -> float:
    if type(criterion) is LabelSmoothingCrossEntropy:
        return float(criterion.smoothing)
    return float(criterion.label_smoothing) if type(criterion) is nn.CrossEntropyLoss else 0.0


def _problem(criterion: Any) -> str:
    """What of a loss the objective would drop; nothing for plain cross-entropy."""
    if type(criterion) is not nn.CrossEntropyLoss:
        name = getattr(criterion, "__name__", None) or type(criterion).__name__
        flag = _FLAGS.get(type(criterion))
        way_out = f"leave out {flag}" if flag else "write it as an Objective"
        return f"{name}, which the objective would replace: {way_out}"
    if criterion.weight is not None:
        return "weights of classes, which the objective would drop: leave them out, or draw the classes evenly"
    if criterion.ignore_index != IGNORE_INDEX:
        return f"ignore_index={criterion.ignore_index}: give ignored images the label {IGNORE_INDEX}"
    if criterion.reduction != "mean":
        return f"reduction={criterion.reduction!r}: the objective is a mean over the images of a call"
    return ""
