"""The progress of a grid: bars on a terminal, plain lines in a log."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from tpkd.compare.run import Watcher
    from tpkd.compare.workers import JobEvent


@contextmanager
def grid_progress() -> "Iterator[Watcher]":
    """What watches a comparison."""
    from tpkd.compare.run import Watcher

    console = Console(stderr=True)
    if not console.is_terminal:
        lines = _Lines(lambda text: console.print(text, highlight=False, markup=False, soft_wrap=True))
        yield Watcher(lines.stage, lines.plan, lines.cell, lines.note)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bars = _Bars(progress)
        yield Watcher(bars.stage, bars.plan, bars.cell, bars.note)


class _Lines:
    """One line for each thing that begins or ends."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write, self._ended, self._cells = write, 0, 0
        self._told: set[str] = set()

    def plan(self, finished: int, waiting: int) -> None:
        self._cells = waiting
        self._write(f"{finished} cells finished already, {waiting} to run")

    def note(self, sentence: str) -> None:
        self._write(sentence)

    def stage(self, name: str, done: int, total: int) -> None:
        if done == total and name not in self._told:  # its last step says so, and then its end
            self._told.add(name)
            self._write(f"{name}: done")

    def cell(self, event: "JobEvent") -> None:
        if event.kind == "progress":
            return
        self._ended += event.kind != "started"
        count = "" if event.kind == "started" else f" ({self._ended} of {self._cells})"
        problem = f": {event.problem}" if event.problem else ""
        self._write(f"{event.job} {event.kind}{count}{problem}")


class _Bars:
    """A bar for the grid, one for each cell that runs, one for a stage that comes once."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._grid: TaskID | None = None
        self._tasks: dict[str, TaskID] = {}

    def plan(self, finished: int, waiting: int) -> None:
        self._grid = self._progress.add_task("cells", total=finished + waiting, completed=finished)

    def note(self, sentence: str) -> None:
        self._progress.console.print(sentence, markup=False, highlight=False)

    def stage(self, name: str, done: int, total: int) -> None:
        self._update(name, done, total)
        if done == total:
            self._remove(name)

    def cell(self, event: "JobEvent") -> None:
        if event.kind in ("started", "progress"):
            self._update(event.job, event.done, event.total)
            return
        self._remove(event.job)
        if event.kind == "failed":
            self._progress.console.print(f"{event.job} failed: {event.problem}", markup=False, highlight=False)
        if self._grid is not None:
            self._progress.advance(self._grid)

    def _update(self, name: str, done: int, total: int) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(f"  {name}", total=None)
        self._progress.update(self._tasks[name], completed=done, total=total or None)

    def _remove(self, name: str) -> None:
        if name in self._tasks:
            self._progress.remove_task(self._tasks.pop(name))
