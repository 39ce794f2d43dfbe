"""When a grid will end, from the steps that its cells have taken: no clock in here, every time is given."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


@dataclass
class _Cell:
    """A cell that was started: when, and its first and last report as time and steps done."""

    started: float
    first: tuple[float, int] | None = None
    last: tuple[float, int] | None = None
    ended: float | None = None
    whole: bool = True
    """Whether it did not fail."""


class Pace:
    """How fast the cells of a grid go; all of them have the same number of steps.

    Example:
        >>> pace = Pace(cells=3)
        >>> pace.start("ce-42", 0.0)
        >>> pace.report("ce-42", 1, 101, 10.0)
        >>> pace.report("ce-42", 51, 101, 35.0)
        >>> pace.seconds_left(35.0)  # 50 steps of half a second, then two cells of 101
        126.0
    """

    def __init__(self, cells: int) -> None:
        """A grid with so many cells to run."""
        self._total = cells
        self._cells: dict[str, _Cell] = {}
        self._steps = 0
        self._places = 1

    def start(self, cell: str, now: float) -> None:
        """A cell started, or started again."""
        self._cells[cell] = _Cell(now)
        self._places = max(self._places, len(self.running))

    def report(self, cell: str, done: int, total: int, now: float) -> None:
        """A running cell has done some of its steps."""
        found = self._cells.setdefault(cell, _Cell(now))
        found.first = found.first or (now, done)
        found.last = (now, done)
        self._steps = max(self._steps, total)

    def end(self, cell: str, now: float, *, failed: bool = False) -> None:
        """A cell finished or failed."""
        found = self._cells.setdefault(cell, _Cell(now))
        found.ended, found.whole = now, not failed

    @property
    def running(self) -> dict[str, int]:
        """The cells that run, and their steps done."""
        cells = self._cells.items()
        return {name: cell.last[1] if cell.last else 0 for name, cell in cells if cell.ended is None}

    @property
    def ended(self) -> int:
        """How many cells have finished or failed."""
        return len(self._cells) - len(self.running)

    @property
    def steps(self) -> int:
        """Steps of one cell; 0 while that is not known."""
        return self._steps

    @property
    def share(self) -> float:
        """The share of all steps that is done, in [0, 1]; those of a failed cell count as done."""
        if not self._steps or not self._total:
            return 0.0
        return (self.ended + sum(self.running.values()) / self._steps) / self._total

    def seconds_left(self, now: float) -> float | None:
        """Seconds until the last cell ends; None before any cell has reported twice."""
        measured = [(cell.first, cell.last) for cell in self._cells.values() if cell.first and cell.last]
        steps = sum(last[1] - first[1] for first, last in measured)
        if not steps:
            return None
        per_step = sum(last[0] - first[0] for first, last in measured) / steps
        before, after = self._overheads()
        left = []
        for cell in self._cells.values():
            if cell.ended is None and cell.last is None:
                left.append(before + self._steps * per_step + after - (now - cell.started))
            elif cell.ended is None and cell.last is not None:
                left.append((self._steps - cell.last[1]) * per_step + after - (now - cell.last[0]))
        waiting = max(0, self._total - len(self._cells))
        return schedule(left, waiting, before + self._steps * per_step + after, self._places)

    def _overheads(self) -> tuple[float, float]:
        """What a cell takes before its first step and after its last one, on average over those that finished."""
        done = [cell for cell in self._cells.values() if cell.ended is not None and cell.whole and cell.last]
        if not done:
            return 0.0, 0.0
        before = sum(cell.first[0] - cell.started for cell in done if cell.first)
        after = sum(cell.ended - cell.last[0] for cell in done if cell.ended is not None and cell.last)
        return before / len(done), after / len(done)


def schedule(running: Sequence[float], waiting: int, each: float, places: int) -> float:
    """Seconds until all jobs have ended, if each one that waits takes the first place that becomes free.

    Args:
        running: seconds that each running job still takes.
        waiting: number of jobs that wait.
        each: seconds that one of those takes.
        places: how many jobs run at the same time.

    Example:
        >>> schedule([10.0, 40.0], waiting=2, each=25.0, places=2)
        60.0
        >>> schedule([], waiting=3, each=5.0, places=2)
        10.0
    """
    free = [max(0.0, seconds) for seconds in running] + [0.0] * (places - len(running))
    heapq.heapify(free)
    for _ in range(waiting):
        heapq.heappush(free, heapq.heappop(free) + each)
    return max(free, default=0.0)


def outlook(seconds: float, now: datetime) -> str:
    """How long something still takes, and when it ends.

    Args:
        seconds: still to go.
        now: the time of day.

    Example:
        >>> outlook(4805, datetime(2026, 3, 1, 13, 12)), outlook(50, datetime(2026, 3, 1, 23, 59, 30))
        ('about 1 h 20 min left, ends 14:32', 'about 50 s left, ends 2026-03-02 00:00')
    """
    end = now + timedelta(seconds=seconds)
    day = "" if end.date() == now.date() else f"{end:%Y-%m-%d} "
    return f"about {duration(seconds)} left, ends {day}{end:%H:%M}"


def duration(seconds: float) -> str:
    """A duration in its two largest units.

    Example:
        >>> [duration(seconds) for seconds in (0.2, 59, 130, 3600, 90061)]
        ['0 s', '59 s', '2 min', '1 h 0 min', '1 d 1 h']
    """
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


@dataclass
class Teller:
    """When a log gets its next line: after another tenth of the work, but not at once, or after some time.

    Example:
        >>> teller = Teller()
        >>> reports = [(0.0, 0.0), (0.2, 1.0), (0.25, 6.0), (0.26, 20.0), (0.27, 36.0)]
        >>> [teller.is_due(share, now) for share, now in reports]
        [False, False, True, False, True]
    """

    every: float = 30.0
    """Seconds, at most, while there is progress; longer for work of hours, so that it has some two hundred lines."""
    at_least: float = 5.0
    """Seconds between two lines."""
    _told: tuple[float, float] | None = None
    _begun: tuple[float, float] | None = None

    def is_due(self, share: float, now: float) -> bool:
        """Whether to tell now, with a share in [0, 1] of the work done; if so, it counts as told."""
        if self._told is None or self._begun is None:
            self._told = self._begun = share, now
            return False
        passed, done = now - self._told[1], share - self._begun[0]
        whole = (now - self._begun[1]) / done if done > 0 else 0.0
        tenth = int(10 * share) > int(10 * self._told[0])
        if share > self._told[0] and (passed >= max(self.every, whole / 200) or (tenth and passed >= self.at_least)):
            self._told = share, now
            return True
        return False
