"""Progress of a command: bars on a terminal, plain lines in a log."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from tpkd.cli.console import say

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
        self, name: str, done: int, total: int, line: str = "", *, parts: int = 1, title: str | None = None
    ) -> None:
        """Update a bar, or print a line whenever another part of the work is done.

        Args:
            name: identifies the bar.
            done: units of work done.
            total: units of work in total; 0 if not known yet.
            line: text for a log.
            parts: maximum number of lines in a log.
            title: label of the bar, if different from its name.
        """
        part = parts * done // total if total else 0
        if line and part > self._told.get(name, 0):
            self.log(line)
        self._told[name] = max(part, self._told.get(name, 0))
        if self._bars is not None:
            if name not in self._tasks:
                self._tasks[name] = self._bars.add_task(name, total=None)
            self._bars.update(self._tasks[name], completed=done, total=total or None, description=title or name)

    def remove(self, name: str) -> None:
        """Remove a bar."""
        if self._bars is not None and name in self._tasks:
            self._bars.remove_task(self._tasks.pop(name))


@contextmanager
def display() -> Iterator[Display]:
    """A progress display on standard error."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Display(None)
        return
    remaining = TimeRemainingColumn(elapsed_when_finished=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), remaining)
    with Progress(*columns, console=console, transient=True) as bars:
        yield Display(bars)


@contextmanager
def counted(name: str, *, parts: int) -> Iterator[Callable[[int, int], None]]:
    """A callback that shows progress as `done` of `total`."""
    with display() as show:
        yield lambda done, total: show.update(name, done, total, f"{name}: {done} of {total}", parts=parts)


@contextmanager
def grid_progress() -> "Iterator[Watcher]":
    """Callbacks for a comparison: a bar for the grid, one per running cell, and one per one-time stage."""
    from tpkd.compare.run import Watcher

    with display() as show:
        finished = ended = waiting = 0

        def plan(done: int, open_: int) -> None:
            nonlocal finished, waiting
            finished, waiting = done, open_
            show.log(f"{finished} cells finished already, {waiting} to run")
            show.update("cells", finished, finished + waiting)

        def stage(name: str, done: int, total: int) -> None:
            show.update(f"  {name}", done, total, f"{name}: done")
            if done == total:
                show.remove(f"  {name}")

        def cell(event: "JobEvent") -> None:
            nonlocal ended
            if event.kind == "started":
                show.log(f"{event.job} started")
            if event.kind in ("started", "progress"):
                show.update(f"  {event.job}", event.done, event.total)
                return
            ended += 1
            tell = show.line if event.problem else show.log
            problem = f": {event.problem}" if event.problem else ""
            tell(f"{event.job} {event.kind} ({ended} of {waiting}){problem}")
            show.remove(f"  {event.job}")
            show.update("cells", finished + ended, finished + waiting)

        yield Watcher(stage, plan, cell, show.line)
