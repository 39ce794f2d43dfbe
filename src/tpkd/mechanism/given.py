"""States that are given as files: weights of any code base, and optimiser states where a study goes on from them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from tpkd.class_names import check_class_names, recorded_names
from tpkd.config.schema import RunConfig
from tpkd.errors import InputError, did_you_mean
from tpkd.mechanism.optimizer_states import find_checkpoint, fit_optimizer, read_optimizer
from tpkd.mechanism.record import FRESH, SnapshotState
from tpkd.models.state_files import PICKLED
from tpkd.models.weights import load_weights, weights_fingerprint
from tpkd.training.checkpoint import Checkpoint
from tpkd.training.run import Run
from tpkd.training.state import split_optimizer

_MODEL_NAME = "model.safetensors"


@dataclass(frozen=True)
class GivenState:
    """A state of the student that is not a whole snapshot of the run."""

    name: str
    weights: Path
    """A file of weights, or a checkpoint directory of a run, which also has the state of its optimiser."""
    optimizer: Path | None = None
    epoch: int | None = None
    """For a snapshot of the run that kept its weights alone."""


def parse_states(states: Iterable[str], optimizers: Iterable[str] = ()) -> tuple[GivenState, ...]:
    """States and their optimisers from `NAME=PATH`, as the command line has them.

    Raises:
        InputError: a name or path is missing, a name is there twice, or an optimiser belongs to no state.

    Example:
        >>> [(state.name, state.optimizer.name) for state in parse_states(["CE20=a.pth"], ["CE20=a-optimizer.pt"])]
        [('CE20', 'a-optimizer.pt')]
    """
    weights, paths = _pairs("--state", states), _pairs("--optimizer-state", optimizers)
    for name in paths:
        if name not in weights:
            known = ", ".join(weights) or "none"
            raise InputError(
                f"--optimizer-state {name}: expected a --state, found {known}{did_you_mean(name, weights)}"
            )
    return tuple(GivenState(name, path, paths.get(name)) for name, path in weights.items())


def _pairs(option: str, texts: Iterable[str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for text in texts:
        name, _, path = text.partition("=")
        if not name.strip() or not path.strip():
            raise InputError(f"{option}: expected NAME=PATH, such as CE20=weights.safetensors, found {text!r}")
        if name.strip() in found:
            raise InputError(f"{option}: expected every name once, found {name.strip()} twice")
        found[name.strip()] = Path(path)
    return found


def without_start(config: RunConfig) -> RunConfig:
    """The run with a student of any start, for a study that gives it all of its weights."""
    student = config.student
    options = {key: value for key, value in student.options.items() if key != "pretrained"}
    head = "own" if student.head == "own" else "random"
    plain = student.model_copy(update={"options": options, "weights": None, "head": head, "probe_file": None})
    return config.model_copy(update={"student": plain})


def read_state(run: Run, start: Checkpoint, given: GivenState, *, native: bool) -> tuple[SnapshotState, Checkpoint]:
    """Load given weights into the run's student; returns the state as if a snapshot had kept it.

    Optimisers without a given state, scalers and random generators are those of the start of the run.

    Args:
        run: whose student and optimiser have the shapes; the student is overwritten.
        start: the run before its first step.
        given: the files.
        native: whether the study goes on to train, and needs the optimiser.

    Raises:
        InputError: a file is missing or damaged, or does not fit the run; names it.
    """
    whole = find_checkpoint(given.weights) if given.weights.is_dir() else None
    path = given.weights if whole is None else whole[1] / _MODEL_NAME
    check_class_names(recorded_names(path), run.dataset.class_names, found_in=str(path), expected_in=run.dataset.name)
    foreign = whole is None and given.epoch is None
    names = load_weights(run.student, path, weight_map=run.config.student.weight_map if foreign else None)
    for name, value in run.student.state_dict().items():
        if not value.isfinite().all():
            raise InputError(f"{path}: {name}: expected finite numbers, found {value[~value.isfinite()][0].item()}")
    groups = {**start.groups, "model": {name: value.clone() for name, value in run.student.state_dict().items()}}
    values, optimizer = start.values, None
    if native:
        source = given.optimizer or (given.weights if whole else None)
        optimizer = FRESH if source is None else source.name
        if source is not None:
            order = _parameter_order(run.student, names if path.suffix in PICKLED else ())
            fitted = fit_optimizer(read_optimizer(source), run.optimizer, order, str(source))
            groups["optimizer"], optimizer_values = split_optimizer(fitted)
            values = {**values, "optimizer": optimizer_values}
    about = SnapshotState(
        name=given.name,
        epoch=given.epoch,
        step=None if whole is None else whole[0].step,
        student_fingerprint=weights_fingerprint(run.student),
        file=None if given.epoch is not None else given.weights.name,
        optimizer=optimizer,
    )
    return about, replace(start, groups=groups, values=values)


def _parameter_order(student: nn.Module, names: Iterable[str]) -> list[nn.Parameter]:
    """The parameters in the order of a file that keeps it, which is that of its program; else in our own."""
    parameters = dict(student.named_parameters())
    return [parameters[name] for name in names if name in parameters] or list(parameters.values())
