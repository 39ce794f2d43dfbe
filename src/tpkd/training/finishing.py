"""The end of a run: its student in the precision asked for, and nothing on disk that it no longer needs."""

from pathlib import Path

import torch
from torch import nn

from tpkd.config.finished import FinishedConfig
from tpkd.models.weights import weights_fingerprint
from tpkd.training.checkpoint import Checkpoints
from tpkd.training.directory import SNAPSHOTS_NAME, KeptWeights, checkpoints_of
from tpkd.training.evaluation import Evaluation, evaluate
from tpkd.training.log import RunLog
from tpkd.training.run import Run

PRECISIONS = {"fp16": torch.float16, "bf16": torch.bfloat16}


def round_weights(module: nn.Module, dtype: torch.dtype) -> str | None:
    """Round every weight and buffer to a precision, in place and in its own dtype.

    Returns:
        The name of the first tensor that does not fit, and nothing is rounded; None if all do.

    Example:
        >>> layer = nn.Linear(1, 1)
        >>> nn.init.constant_(layer.weight, 0.1).item(), round_weights(layer, torch.bfloat16), layer.weight.item()
        (0.10000000149011612, None, 0.10009765625)
        >>> nn.init.constant_(layer.weight, 1e5).item(), round_weights(layer, torch.float16), layer.weight.item()
        (100000.0, 'weight', 100000.0)
    """
    tensors = {name: value for name, value in module.state_dict().items() if value.is_floating_point()}
    for name, value in tensors.items():
        if not value.to(dtype).isfinite().all():
            return name
    with torch.no_grad():
        for value in tensors.values():
            value.copy_(value.to(dtype))
    return None


def keep_precision(run: Run, trained: Evaluation | None, log: RunLog) -> KeptWeights | None:
    """Round the student to the precision in which it is kept, and evaluate it there; called by every process.

    Args:
        run: at its end; nothing trains its student any more.
        trained: of the student as trained; None where the test split is not looked at.
        log: is told both accuracies.

    Returns:
        What is kept; None where that is the student as trained.
    """
    precision = run.config.finished.weights
    if precision == "fp32":
        return None
    misfit = round_weights(run.student, PRECISIONS[precision])
    if misfit is not None:
        log.note(f"kept in fp32, because {misfit} does not fit into {precision}")
        return None
    fingerprint = weights_fingerprint(run.student)
    if trained is None:
        return KeptWeights(precision, fingerprint, None, None)
    found = evaluate(run.student, run.test_dataset, run.preparation, run.accelerator, run.config)
    log.note(f"kept in {precision}: accuracy {found.accuracy:.4f}, as trained {trained.accuracy:.4f}")
    return KeptWeights(precision, fingerprint, found.accuracy, found.label_loss)


def tidy(directory: Path, finished: FinishedConfig) -> int:
    """Remove what a finished run is not to keep, for the process that holds its directory.

    Returns:
        The number of bytes removed.

    Raises:
        InputError: something cannot be removed; names it.
    """
    unwanted = [checkpoints_of(directory)] if finished.checkpoints is False else []
    if finished.snapshots == "weights":
        # A state without weights beside it is the only copy of its student.
        kept = sorted((directory / SNAPSHOTS_NAME).glob("epoch-*.safetensors"))
        unwanted += [Checkpoints(path.with_suffix(""), keep=1) for path in kept]
    return sum(checkpoints.remove() for checkpoints in unwanted)
