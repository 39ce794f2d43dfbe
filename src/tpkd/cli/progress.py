"""Progress of a command: bars on a terminal, plain lines in a log."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from tpkd.cli.console import say
from tpkd.compare.estimate import Pace, Teller, outlook

if TYPE_CHECKING:
    from tpkd.compare.run import Watcher
    from tpkd.executors.jobs import JobEvent


class Display:
    """Shows bars if `bars` is given, otherwise plain lines."""

    def __init__(self, bars: Progress | None) -> None:
        """Start with nothing shown."""
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        self._told: dict[str, int] = {}

    def line(self, text: str) -> None:
        """Print a line, both on a terminal and in a log."""
        if self._bars is None:
            say(text, error=True)
        else:
            self._bars.console.print(text, markup=False, highlight=False)

    def log(self, text: str) -> None:
        """Print a line in a log only; on a terminal the bars show it."""
        if self._bars is None:
            self.line(text)

    def update(
        self,
        name: str,
        done: int,
        total: int,
        line: str = "",
        *,
        parts: int = 1,
        title: str | None = None,
        outlook: str | None = None,
    ) -> None:
        """Update a bar, or print a line whenever another part of the work is done.

        Args:
            name: identifies the bar.
            done: units of work done.
            total: units of work in total; 0 if not known yet.
            line: text for a log.
            parts: maximum number of lines in a log.
            title: label of the bar, if different from its name.
            outlook: what stands behind the bar instead of the time that is left at its own speed.
        """
        part = parts * done // total if total else 0
        if line and part > self._told.get(name, 0):
            self.log(line)
        self._told[name] = max(part, self._told.get(name, 0))
        if self._bars is not None:
            if name not in self._tasks:
                self._tasks[name] = self._bars.add_task(name, total=None)
            self._bars.update(
                self._tasks[name], completed=done, total=total or None, description=title or name, outlook=outlook
            )

    def remove(self, name: str) -> None:
        """Remove a bar."""
        if self._bars is not None and name in self._tasks:
            self._bars.remove_task(self._tasks.pop(name))


class _Remaining(TimeRemainingColumn):
    """The outlook of a bar, or the time that is left at its own speed."""

    def render(self, task: Task) -> Text:
        outlook = task.fields.get("outlook")
        return super().render(task) if outlook is None else Text(outlook)


@contextmanager
def display() -> Iterator[Display]:
    """A progress display on standard error."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Display(None)
        return
    remaining = _Remaining(elapsed_when_finished=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), remaining)
    with Progress(*columns, console=console, transient=True) as bars:
        yield Display(bars)


@contextmanager
def counted(name: str, *, parts: int) -> Iterator[Callable[[int, int], None]]:
    """A callback that shows progress as `done` of `total`."""
    with display() as show:
        yield lambda done, total: show.update(name, done, total, f"{name}: {done} of {total}", parts=parts)


@contextmanager
def grid_progress(
    clock: Callable[[], float] = time.monotonic, today: Callable[[], datetime] = datetime.now
) -> "Iterator[Watcher]":
    """Callbacks for a comparison: a bar for the grid with its estimated end, one per running cell and per stage.

    Args:
        clock: seconds from any start.
        today: the time of day.
    """
    from tpkd.compare.run import Watcher

    with display() as show:
        grid = _GridProgress(show, clock, today)
        yield Watcher(grid.on_stage, grid.on_plan, grid.on_cell, show.line)


class _GridProgress:
    """What a comparison shows of itself."""

    def __init__(self, show: Display, clock: Callable[[], float], today: Callable[[], datetime]) -> None:
        self._show, self._clock, self._today = show, clock, today
        self._finished, self._waiting = 0, 0
        self._pace, self._teller, self._stages = Pace(0), Teller(), dict[str, tuple[float, int, Teller]]()

    def on_plan(self, finished: int, waiting: int) -> None:
        self._finished, self._waiting, self._pace = finished, waiting, Pace(waiting)
        self._show.log(f"{finished} cells finished already, {waiting} to run")
        self._show_grid()

    def on_stage(self, name: str, done: int, total: int) -> None:
        now, bar = self._clock(), f"  {name}"
        begun, before, teller = self._stages.setdefault(name, (now, done, Teller()))
        if done < total and teller.is_due(done / max(total, 1), now):
            left = (now - begun) / (done - before) * (total - done)
            self._show.log(f"{name}: {done:,} of {total:,}, {outlook(left, self._today())}")
        self._show.update(bar, done, total, f"{name}: done")
        if done == total:
            self._show.remove(bar)

    def on_cell(self, event: "JobEvent") -> None:
        now, bar = self._clock(), f"  {event.job}"
        if event.kind == "started":
            self._pace.start(event.job, now)
            self._show.log(f"{event.job} started")
        elif event.kind == "progress":
            self._pace.report(event.job, event.done, event.total, now)
        else:
            self._pace.end(event.job, now, failed=bool(event.problem))
            tell = self._show.line if event.problem else self._show.log
            problem = f": {event.problem}" if event.problem else ""
            tell(f"{event.job} {event.kind} ({self._pace.ended} of {self._waiting}){problem}")
            self._show.remove(bar)
        if event.kind in ("started", "progress"):
            self._show.update(bar, event.done, event.total)
        if self._teller.is_due(self._pace.share, now):
            self._show.log(self._line())
        self._show_grid()

    def _show_grid(self) -> None:
        total = self._finished + self._waiting
        self._show.update("cells", self._finished + self._pace.ended, total, outlook=self._outlook())

    def _outlook(self) -> str:
        left = self._pace.seconds_left(self._clock())
        return "" if left is None or self._pace.ended == self._waiting else outlook(left, self._today())

    def _line(self) -> str:
        pace, ahead = self._pace, self._outlook()
        running = ", ".join(f"{cell} {done:,}/{pace.steps:,}" for cell, done in pace.running.items())
        parts = [f"{pace.ended} of {self._waiting} cells, {pace.share:.0%} of their steps", running, ahead]
        return "; ".join(part for part in parts if part)
