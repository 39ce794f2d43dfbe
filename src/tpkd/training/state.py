"""The state of a run between two steps, to and from a checkpoint."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from tpkd.class_names import check_class_names
from tpkd.errors import InputError, reason
from tpkd.training.checkpoint import Checkpoint
from tpkd.training.log import Averages
from tpkd.training.randomness import random_state, restore_random_state
from tpkd.training.run import Run
from tpkd.training.selection import Best

_KEPT = ("skipped_steps", "seconds", "metrics_bytes", "metrics_sha256")


@dataclass
class Progress:
    """How far a run is, beside its networks and generators."""

    step: int = 0
    """Steps taken; the data cursor is this times the batch size."""
    skipped_steps: int = 0
    seconds: float = 0.0
    metrics_bytes: int = 0
    metrics_sha256: str = ""
    """Of so many bytes of the metrics."""
    overflows: int = 0
    """Steps in a row that mixed precision has left out."""
    processes: int | None = None
    """Those of the checkpoint that the run continues; None at its start."""
    recent: Averages = field(default_factory=Averages)
    """Since the last line of the log."""
    epoch: Averages = field(default_factory=Averages)
    """Since the last epoch ended."""
    best: Best | None = None
    """The best student so far, where the result is chosen by validation."""


def capture(run: Run, progress: Progress) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Everything that decides how the run goes on, as named tensors and plain values; called by every process."""
    from accelerate.utils import gather_object

    optimizer_tensors, optimizer_values = split_optimizer(run.optimizer.state_dict())
    objective = run.objective.state_dict()
    scaler = run.accelerator.scaler
    generators = {
        f"{process}.{name}": value
        for process, state in enumerate(gather_object([random_state()]))
        for name, value in state.items()
    }
    groups = {
        "model": run.student.state_dict(),
        "optimizer": optimizer_tensors,
        "objective": {name: value for name, value in objective.items() if isinstance(value, Tensor)},
        "random": generators,
    }
    values = {
        "class_names": list(run.dataset.class_names),
        **{name: getattr(progress, name) for name in _KEPT},
        "processes": run.accelerator.num_processes,
        "recent": progress.recent.state,
        "epoch": progress.epoch.state,
        "optimizer": optimizer_values,
        "objective": {name: value for name, value in objective.items() if not isinstance(value, Tensor)},
        "scaler": None if scaler is None else scaler.state_dict(),
        **_bindings(run),
    }
    if progress.best is not None:
        groups["best"], values["best"] = progress.best.state, progress.best.numbers
    return groups, values


def restore(run: Run, checkpoint: Checkpoint) -> Progress:
    """Put a run back to where a checkpoint found it.

    Any number of processes may continue, on the same batches: each takes its own generators, and one that the
    checkpoint does not know gets a new seed. Only the same number of processes ends with the same bits.

    Raises:
        InputError: the checkpoint belongs to other data, another teacher or start.
    """
    groups, values = checkpoint.groups, checkpoint.values
    check_class_names(
        values.get("class_names"),
        run.dataset.class_names,
        found_in=f"checkpoint of step {checkpoint.step}",
        expected_in=run.dataset.name,
    )
    for name, expected in _bindings(run).items():
        if values.get(name) != expected:
            found = values.get(name)
            raise InputError(f"checkpoint of step {checkpoint.step}: {name}: expected {expected!r}, found {found!r}")
    try:
        run.student.load_state_dict(groups["model"])
        run.optimizer.load_state_dict(join_optimizer(groups["optimizer"], values["optimizer"]))
        run.objective.load_state_dict({**groups["objective"], **values["objective"]})
        if run.accelerator.scaler is not None:
            run.accelerator.scaler.load_state_dict(values["scaler"])
        _restore_generators(run, checkpoint)
        return Progress(
            step=checkpoint.step,
            recent=Averages(values["recent"]),
            epoch=Averages(values["epoch"]),
            best=Best(**values["best"], state=groups["best"]) if "best" in groups else None,
            **{name: values[name] for name in (*_KEPT, "processes")},
        )
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"checkpoint of step {checkpoint.step}: does not fit this run: {reason(error)}") from error


def _restore_generators(run: Run, checkpoint: Checkpoint) -> None:
    from accelerate.utils import set_seed

    prefix, tensors = f"{run.accelerator.process_index}.", checkpoint.groups["random"]
    own = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    if own or run.accelerator.process_index == 0:
        restore_random_state(own)
        return
    # Not the seed of the start, which would draw once more what was drawn in the first steps.
    text = f"{run.config.seed} {checkpoint.step} {run.accelerator.process_index}"
    set_seed(int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]))


def _bindings(run: Run) -> dict[str, Any]:
    """What a run must be made of to continue a checkpoint; networks that do not learn go by their fingerprints."""
    found = {
        "data": run.dataset.fingerprint,
        "teacher": None if run.teacher is None else run.teacher.fingerprint,
        "initial": None if run.initial is None else run.initial.fingerprint,
    }
    if run.selects and run.validation_dataset is not None:
        found["validation"] = run.validation_dataset.fingerprint
    return found


def split_optimizer(state: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state dict of an optimiser as named tensors and plain values, as a checkpoint holds them."""
    tensors, scalars = {}, {}
    for index, entries in state["state"].items():
        for name, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"{index}.{name}"] = value
            elif value is not None:  # momentum before the first step
                scalars[f"{index}.{name}"] = value
    return tensors, {"scalars": scalars, "param_groups": state["param_groups"]}


def join_optimizer(tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> dict[str, Any]:
    """The state dict that `split_optimizer` took apart."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in {**tensors, **values["scalars"]}.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    groups = [
        {name: tuple(value) if name == "betas" else value for name, value in group.items()}
        for group in values["param_groups"]
    ]
    return {"state": state, "param_groups": groups}
