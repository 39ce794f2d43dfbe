"""Whom a run tells about its progress beside `metrics.jsonl`: TensorBoard, and accelerate's trackers."""

import logging
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

from tpkd.config.loading import ConfigError
from tpkd.errors import InputError, reason, shortened
from tpkd.files import read_parsed, write_file
from tpkd.record import Record
from tpkd.training.board import Board
from tpkd.training.panels import PANELS
from tpkd.training.randomness import preserved

BOARD_NAME = "tensorboard"
IDS_NAME = "tracking.json"
TRACKED_NAMES = (IDS_NAME, BOARD_NAME, "wandb", "mlflow")
"""What trackers write in a run directory. trackio keeps all runs in one place of its own, fixed when it is imported."""
PROJECT = "tpkd"
"""The project or experiment in which services keep runs, unless their own variables name another."""

_PACKAGES = {"tensorboard": ("tensorboard",), "mlflow": ("mlflow", "mlflow-skinny")}
_INSTALL = {"tensorboard": "'tpkd[tensorboard]'"}
_WANDB_VARIABLES = {"id": "WANDB_RUN_ID", "resume": "WANDB_RESUME", "name": "WANDB_NAME", "dir": "WANDB_DIR"}
_MLFLOW_STORE = "MLFLOW_TRACKING_URI"
_logger = logging.getLogger(__name__)


def chosen_trackers(tracking: Sequence[str] | None) -> tuple[str, ...]:
    """The trackers of a configuration; without any choice, TensorBoard where it is installed.

    Example:
        >>> chosen_trackers(()), chosen_trackers(["wandb"])
        ((), ('wandb',))
    """
    if tracking is None:
        return ("tensorboard",) if _is_installed("tensorboard") else ()
    return tuple(tracking)


def check_trackers(tracking: Sequence[str] | None) -> None:
    """Refuse a tracker whose library is not installed, in one line with what to install.

    Raises:
        ConfigError: names the library.
    """
    for name in chosen_trackers(tracking):
        if not any(map(_is_installed, _PACKAGES.get(name, (name,)))):
            raise ConfigError(f"tracking: {name} is not installed: pip install {_INSTALL.get(name, name)}")
        if name == "mlflow" and not os.environ.get(_MLFLOW_STORE) and not _is_installed("sqlalchemy"):
            way_out = f"pip install mlflow, or name a server in {_MLFLOW_STORE}"
            raise ConfigError(f"tracking: mlflow needs sqlalchemy to keep a run in its directory: {way_out}")


def _is_installed(package: str) -> bool:
    # Not by its module: a folder `wandb` that an earlier run left in the working directory can be imported too.
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


class Tracker(Protocol):
    """One service, under the names of accelerate's trackers."""

    def log(self, values: dict[str, float], step: int) -> None:
        """One point of each curve."""

    def finish(self) -> None:
        """Send what is left, and close."""


@dataclass(frozen=True)
class TrackedRuns(Record):
    """Under which id each service knows the run of this directory, so that it continues there."""

    ids: dict[str, str] = field(default_factory=dict)


class Trackers:
    """The trackers of one run. One that fails, at the start or later, is dropped: it never ends a run.

    Every method returns a line for the log about each tracker that it had to drop.

    Example:
        >>> import tempfile
        >>> trackers = Trackers(["tensorboard"], Path(tempfile.mkdtemp()), {"epochs": 1})
        >>> trackers.start(0) + trackers.log({"train/loss": 0.5}, 1) + trackers.finish()
        []
    """

    def __init__(self, names: Sequence[str], directory: Path, settings: Mapping[str, Any]) -> None:
        """Track the run of a directory; `settings` are its configuration, with dotted keys."""
        self._waiting, self._directory, self._settings = names, directory, settings
        self._open: dict[str, Tracker] = {}

    def start(self, step: int) -> list[str]:
        """Open all of them, after a step."""
        return self._try_all(self._waiting, lambda name: self._start(name, step))

    def _start(self, name: str, step: int) -> None:
        if name == "tensorboard":
            board = Board(self._directory / BOARD_NAME, step)
            board.lay_out(PROJECT, {panel.title: [panel.tag] for panel in PANELS})
            self._open[name] = _BoardTracker(board)
            return
        path = self._directory / IDS_NAME
        known = read_parsed(path, TrackedRuns.from_json) or TrackedRuns()
        tracker = _AccelerateTracker(name, self._directory)
        run_id = tracker.start(known.ids.get(name), self._settings)
        self._open[name] = tracker
        if known.ids.get(name) != run_id:
            write_file(path, TrackedRuns({**known.ids, name: run_id}).to_json())

    def log(self, values: dict[str, float], step: int) -> list[str]:
        """One point of each curve."""
        return self._try_all(tuple(self._open), lambda name: self._open[name].log(values, step))

    def finish(self) -> list[str]:
        """Close all of them."""
        return self._try_all(tuple(self._open), lambda name: self._open.pop(name).finish())

    def _try_all(self, names: Sequence[str], action: Callable[[str], None]) -> list[str]:
        problems = []
        for name in names:
            try:
                action(name)
            except Exception as error:  # whatever a service or its library raises, the run goes on
                self._open.pop(name, None)
                said = reason(error) if isinstance(error, InputError) else f"{type(error).__name__}: {reason(error)}"
                problems.append(f"tracking: {name} failed and is left out from here on: {shortened(said)}")
                _logger.warning(problems[-1])
        return problems


class _BoardTracker:
    """Our own event files: accelerate's tracker would name the machine, and write in a thread."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def log(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self._board.add(name, value, step)

    def finish(self) -> None:
        self._board.close()


class _AccelerateTracker:
    """One of accelerate's trackers, that keeps its files in the run directory and continues the run it began.

    Some libraries draw names and delays from the generators that the run draws from: each call is undone there.
    """

    def __init__(self, name: str, directory: Path) -> None:
        self._name, self._directory = name, directory
        self._tracker: Any = None
        self._has_own_store = False

    @preserved()
    def start(self, run_id: str | None, settings: Mapping[str, Any]) -> str:
        """Begin a run, or continue that of an id; returns the id."""
        try:
            begun = self._start(run_id)
            if run_id is None or self._name != "mlflow":  # which refuses a setting that has changed
                self._tracker.store_init_configuration(dict(settings))
        except BaseException:
            self._leave_store()
            raise
        return begun

    def _start(self, run_id: str | None) -> str:
        from accelerate.tracking import LOGGER_TYPE_TO_CLASS

        kind: Any = LOGGER_TYPE_TO_CLASS[self._name]
        name, begun = self._directory.resolve().name, run_id or secrets.token_hex(4)
        if self._name == "wandb":
            begun = os.environ.get("WANDB_RUN_ID") or begun
            arguments = {"id": begun, "resume": "allow", "name": name, "dir": str(self._directory)}
            own = {key: value for key, value in arguments.items() if not os.environ.get(_WANDB_VARIABLES[key])}
            self._tracker = kind(os.environ.get("WANDB_PROJECT") or PROJECT, **own)
        elif self._name == "mlflow":
            self._tracker = kind(PROJECT, logging_dir=self._mlflow_store(), run_id=run_id, run_name=name)
        else:
            self._tracker = kind(PROJECT, name=f"{name}-{begun}", resume="allow")  # it tells runs apart by their names
        self._tracker.start()
        return str(self._tracker.tracker.info.run_id) if self._name == "mlflow" else begun

    def _mlflow_store(self) -> str | None:
        """Keep the run in its directory, unless a store is named; returns the place for artifacts."""
        if os.environ.get(_MLFLOW_STORE):
            return None
        import mlflow

        place = self._directory.resolve() / "mlflow"
        place.mkdir(exist_ok=True)
        mlflow.set_tracking_uri(f"sqlite:///{place / 'mlflow.db'}")
        self._has_own_store = True
        return (place / "artifacts").as_uri()

    def _leave_store(self) -> None:
        if self._has_own_store:
            import mlflow

            mlflow.set_tracking_uri(None)  # the next run of this process has another

    @preserved()
    def log(self, values: dict[str, float], step: int) -> None:
        self._tracker.log(values, step=step)

    @preserved()
    def finish(self) -> None:
        try:
            self._tracker.finish()
        finally:
            self._leave_store()
