"""The directory of a run: held by one process, bound to one configuration, finished once it has a result."""

import itertools
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from tpkd.config.loading import PER_METHOD, config_yaml, load_config
from tpkd.config.schema import RunConfig
from tpkd.errors import InputError
from tpkd.files import first_free, reading, write_file, writing
from tpkd.lock import LOCK_NAME, Hold, locked
from tpkd.models.student import PROBE_NAME
from tpkd.objectives.kernels.cpu import has_kernel
from tpkd.record import Record, added
from tpkd.training.checkpoint import Checkpoints
from tpkd.training.log import LOG_NAME, METRICS_NAME
from tpkd.training.trackers import TRACKED_NAMES

CONFIG_NAME = "config.yaml"
ENVIRONMENT_NAME = "environment.json"
RESULT_NAME = "result.json"
CHECKPOINTS_NAME = "checkpoints"
SNAPSHOTS_NAME = "snapshots"
STUDENT_NAME = "student.safetensors"
TEST_LOGITS_NAME = "test-logits.safetensors"
VALIDATION_LOGITS_NAME = "validation-logits.safetensors"
RUN_NAMES = (
    *(CONFIG_NAME, ENVIRONMENT_NAME, METRICS_NAME, LOG_NAME, *TRACKED_NAMES, PROBE_NAME, CHECKPOINTS_NAME),
    *(SNAPSHOTS_NAME, STUDENT_NAME, TEST_LOGITS_NAME, VALIDATION_LOGITS_NAME, RESULT_NAME),
)
"""All that a run writes; anything else in its directory is left alone."""
ABANDONED_NAME = "abandoned"
"""Where runs are put, counted from 1, that ended before there was anything to continue from."""
FREE_KEYS = ("output", "workers", "checkpoints", "finished", "tracking", *PER_METHOD, "study")
"""What may differ when a run continues, because it changes no number."""

_LIBRARIES = ("tpkd", "torch", "numpy", "accelerate", "safetensors", "transformers", "timm")


@dataclass(frozen=True)
class KeptWeights:
    """The student in the precision in which a run keeps it, and what that costs."""

    precision: str
    fingerprint: str
    """Of its weights in float32 again."""
    accuracy: float | None
    """On the test split, as the next."""
    label_loss: float | None


@dataclass(frozen=True)
class RunResult(Record):
    """How a run ended: its student, by default that of the last epoch, on the test split, and what it was made of."""

    objective: str
    seed: int
    epochs: int
    steps: int
    samples: int
    skipped_steps: int
    """Steps that mixed precision left out because a gradient overflowed."""
    accuracy: float | None
    """On the test split; None, like the next two, where `evaluation.test` is false."""
    label_loss: float | None
    test_samples: int | None
    student_fingerprint: str
    data_fingerprint: str
    teacher_fingerprint: str | None
    initial_fingerprint: str | None
    processes: int
    seconds: float
    """Of all starts together, up to their last checkpoints."""
    class_names: tuple[str, ...] | None = added(None)
    """In the order of the logits; None in results of earlier versions."""
    kept: KeptWeights | None = added(None)  # noqa: RUF009 (a field of ours, not a value)
    """What `student.safetensors` holds where that is not the student as trained."""
    validation_accuracy: float | None = added(None)
    """Of the same student on the validation part; None, like the next two, where there is none."""
    validation_label_loss: float | None = added(None)
    validation_samples: int | None = added(None)
    selection: str = added("last")
    """`last`, or `best-validation` where the student is that of the epoch with the best validation accuracy."""
    selected_epoch: int | None = added(None)
    """That epoch; None where the student is that of the last one by rule."""

    @property
    def kept_fingerprint(self) -> str:
        """The fingerprint of the weights in `student.safetensors`."""
        return self.kept.fingerprint if self.kept else self.student_fingerprint

    @property
    def accuracies(self) -> str:
        """How often the student is right, in words."""
        parts = {"test": (self.accuracy, self.test_samples)}
        parts["validation"] = (self.validation_accuracy, self.validation_samples)
        return " and ".join(f"{share:.2%} of {count} {name} samples" for name, (share, count) in parts.items() if count)

    @property
    def selected(self) -> str:
        """How the student was chosen, where it is not that of the last epoch by rule; else empty."""
        if self.selection == "last":
            return ""
        return f"the student of epoch {self.selected_epoch} of {self.epochs}, selected by validation accuracy"


@dataclass(frozen=True)
class Environment(Record):
    """Where a run was started last."""

    python: str
    platform: str
    device: str
    processes: int
    threads: int
    libraries: dict[str, str]


@contextmanager
def held(directory: Path, *, main: bool) -> Iterator[Hold]:
    """Hold the run directory; a second run in it is refused. Processes of one run share the hold of the first."""
    if not main:
        yield Hold(directory, None)
        return
    with locked(directory, "run") as hold:
        # Left by a run that was killed while publishing; only the lock holder knows that no other process is writing.
        # Other runs may have their directories in this one, and be writing there.
        kept = [(directory / name).rglob(".*.partial") for name in (CHECKPOINTS_NAME, SNAPSHOTS_NAME)]
        for partial in itertools.chain(directory.glob(".*.partial"), *kept):
            if partial.is_file():
                with writing(partial, "removed"):
                    partial.unlink()
        yield hold


def has_progress(directory: Path) -> bool:
    """Whether a run has left a result, or a checkpoint to continue from."""
    return (directory / RESULT_NAME).exists() or bool(checkpoints_of(directory).steps())


def checkpoints_of(directory: Path, *, keep: int = 1) -> Checkpoints:
    """The checkpoints of the run in a directory."""
    return Checkpoints(directory / CHECKPOINTS_NAME, keep=keep)


def bind(directory: Path, config: RunConfig) -> Path | None:
    """Tie a directory to a configuration, or refuse one that is tied to another.

    A run that ended before its first checkpoint gives way to one of another configuration. What it has left, unless
    that is its configuration alone, is moved to `abandoned-N/`; nothing of it is lost, and nothing else is touched.

    Returns:
        Where an abandoned run was moved, None where there was none.

    Raises:
        InputError: the directory holds something else; every key that differs is named.
    """
    path, aside = directory / CONFIG_NAME, None
    if path.exists():
        if not _differences(config, load_config(path)):
            return None
        if has_progress(directory):
            check_bound(directory, config)
        if any(entry.name != CONFIG_NAME for entry in _written(directory)):
            aside = _put_aside(directory)
    elif left := _contents(directory):
        raise InputError(f"{directory}: expected an empty directory or a run, found {left[0].name}")
    write_file(path, config_yaml(config))
    return aside


def _contents(directory: Path) -> list[Path]:
    """What is in a directory, but for its lock and runs that were abandoned."""
    entries = sorted(directory.iterdir())
    return [path for path in entries if path.name != LOCK_NAME and not path.name.startswith(f"{ABANDONED_NAME}-")]


def _written(directory: Path) -> list[Path]:
    return [path for name in RUN_NAMES if (path := directory / name).exists()]


def _put_aside(directory: Path) -> Path:
    aside = first_free(directory / ABANDONED_NAME)
    with writing(aside):
        aside.mkdir()
        # Its configuration last: killed in between, the directory is still that of an abandoned run.
        for path in sorted(_written(directory), key=lambda path: path.name == CONFIG_NAME):
            path.rename(aside / path.name)
    return aside


def check_bound(directory: Path, config: RunConfig) -> None:
    """Refuse a run of another configuration; nothing is written.

    Raises:
        InputError: every key that differs is named.
    """
    differences = _differences(config, load_config(directory / CONFIG_NAME))
    if differences:
        raise InputError(f"{directory}: holds a run of another configuration: {'; '.join(differences)}")


def _differences(config: RunConfig, saved: RunConfig) -> list[str]:
    """The keys whose values decide a number and are not those of the saved run."""
    then, now = (part.model_dump(mode="json", exclude=set(FREE_KEYS)) for part in (saved, config))
    return [f"{key}: expected {old!r}, found {new!r}" for key, old, new in _changes(then, now)]


def _changes(then: dict[str, Any], now: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Dotted keys whose values differ, with both values."""
    old, new = dict(flat_items("", then)), dict(flat_items("", now))
    return [(key, old.get(key), new.get(key)) for key in {**old, **new} if old.get(key) != new.get(key)]


def flat_items(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A configuration as dotted keys and values; a list of sections by their numbers.

    Example:
        >>> dict(flat_items("", {"optimizer": {"name": "sgd"}, "epochs": 2, "teachers": [{"weight": 1.0}]}))
        {'optimizer.name': 'sgd', 'epochs': 2, 'teachers.0.weight': 1.0}
    """
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        value = {str(index): item for index, item in enumerate(value)}
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from flat_items(f"{prefix}.{key}" if prefix else key, item)
    else:
        yield prefix, value


def read_result(directory: str | Path) -> RunResult | None:
    """The result of a run, None while it has none.

    Example:
        >>> read_result("/no/such/run") is None
        True
    """
    path = Path(directory) / RESULT_NAME
    if not path.exists():
        return None
    with reading(path):
        return RunResult.from_json(path.read_text(encoding="utf-8"))


def environment(device: torch.device, processes: int) -> Environment:
    """Versions and hardware, without names of machines or people."""
    libraries = {}
    for name in _LIBRARIES:
        try:
            libraries[name] = version(name)
        except PackageNotFoundError:
            continue
    libraries["tpkd kernel"] = "yes" if has_kernel() else "no"  # with it, sums are taken in another order
    described = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return Environment(
        platform.python_version(), platform.platform(), described, processes, torch.get_num_threads(), libraries
    )


def changes_since(directory: Path, now: Environment) -> list[str]:
    """What is another than where the run of a directory was started last, as far as that is known."""
    path = directory / ENVIRONMENT_NAME
    if not path.exists():
        return []
    try:
        with reading(path):
            then = Environment.from_json(path.read_text(encoding="utf-8"))
    except InputError:  # it is about to be rewritten, and no number depends on it
        return [f"{ENVIRONMENT_NAME} could not be read"]
    return [f"{key} {old} -> {new}" for key, old, new in _changes(then.to_dict(), now.to_dict())]
