"""A run or a grid that is being watched: reads what is new, and says what it knows as records."""

import time
from contextlib import suppress
from pathlib import Path

from tpkd.errors import InputError
from tpkd.executors.status import JobStatus
from tpkd.training.log import METRICS_NAME
from tpkd.training.panels import PANELS
from tpkd.watch.cells import find_runs, is_run, state_of, status_of, statuses_of
from tpkd.watch.record import CellFacts, CurvesRecord, PanelFacts, WatchRecord
from tpkd.watch.series import RunReader

_FACTS = tuple(PanelFacts(panel.name, panel.title, panel.unit, panel.meaning) for panel in PANELS)


class Watch:
    """Follows all runs below a directory.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp())
        >>> _ = (place / "metrics.jsonl").write_text('{"kind": "train", "step": 5, "loss": 2.0}\\n')
        >>> watch = Watch(place)
        >>> cell = watch.record(every=None).cells[0]
        >>> cell.step, cell.latest["loss"]
        (5, 2.0)
    """

    def __init__(self, directory: Path) -> None:
        """Read what is there: a run, or a grid that has started some or is about to.

        Raises:
            InputError: the directory is neither.
        """
        self._directory = directory
        self._paths: dict[str, Path | None] = dict(find_runs(directory))
        self._is_grid = not is_run(directory)
        self._readers: dict[str, RunReader] = {}
        self._numbers: dict[str, int] = {}
        self._statuses: dict[str, JobStatus] = {}
        self.refresh()

    @property
    def title(self) -> str:
        """The name of the directory."""
        return self._directory.resolve().name

    def refresh(self) -> None:
        """Read what is new of every run, and look for new runs."""
        if self._is_grid:
            self._statuses = statuses_of(self._directory)
            with suppress(InputError):  # moved away, and perhaps back again
                self._paths = dict(find_runs(self._directory))
            started = {status.job for name in self._paths if (status := status_of(name, self._statuses))}
            # Cells that wait have no folder yet.
            self._paths |= dict.fromkeys(sorted(self._statuses.keys() - started))
        for name, path in self._paths.items():
            self._numbers.setdefault(name, len(self._numbers))
            if path is not None:
                self._readers.setdefault(name, RunReader(path / METRICS_NAME)).refresh()

    @property
    def names(self) -> dict[int, str]:
        """The names of all cells by their numbers."""
        return {number: name for name, number in self._numbers.items()}

    def record(self, *, every: float | None) -> WatchRecord:
        """All cells with their newest numbers, as of the last refresh.

        Args:
            every: seconds between two of them; None for the last one.
        """
        cells = tuple(self._facts(name, path) for name, path in self._paths.items())
        return WatchRecord(self.title, self._is_grid, time.time(), every, _FACTS, cells)

    def _facts(self, name: str, path: Path | None) -> CellFacts:
        reader, status = self._readers.get(name), status_of(name, self._statuses)
        points = {panel.name: reader.curves[panel.name].last if reader else None for panel in PANELS}
        return CellFacts(
            number=self._numbers[name],
            name=name,
            state=state_of(path, status),
            version=reader.version if reader else 0,
            step=max(reader.step if reader else 0, status.done if status else 0),
            num_steps=status.total or None if status else None,
            changed=reader.changed if reader else None,
            latest={name: point[1] if point else None for name, point in points.items()},
            unreadable=reader.unreadable if reader else 0,
            problem=status.problem if status else "",
        )

    def curves(self, number: int) -> CurvesRecord | None:
        """The curves of one cell; None where there is no such cell."""
        reader = self._readers.get(self.names.get(number, ""))
        if reader is None:
            return None
        found = {name: curve.columns() for name, curve in reader.curves.items() if curve.last is not None}
        steps = {name: tuple(columns[0]) for name, columns in found.items()}
        return CurvesRecord(number, reader.version, steps, {name: tuple(columns[1]) for name, columns in found.items()})
