"""`tpkd compare --status DIR`: what every cell of a grid is doing, from any terminal or machine."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from tpkd.errors import InputError
from tpkd.executors.status import STATUS_NAME, read_statuses

if TYPE_CHECKING:
    from tpkd.executors.status import JobStatus


def show_status(directory: Path) -> None:
    """Print a table of the cells, those that run first.

    Raises:
        InputError: the directory has no status files.
    """
    statuses = read_statuses(directory)
    if not statuses:
        raise InputError(f"{directory}: expected the directory of a grid, found no {STATUS_NAME}/ in it")
    Console().print(status_table(statuses, time.time()))


def status_table(statuses: "list[JobStatus]", now: float) -> Table:
    """One row per cell.

    Example:
        >>> from tpkd.executors.status import JobStatus
        >>> table = status_table([JobStatus("ce-42", "progress", "node-1", 1000.0, done=3, total=10)], 1030.0)
        >>> [next(iter(column.cells)) for column in table.columns]
        ['ce-42', 'running', '3 of 10', 'node-1', '30 s ago', '']
    """
    order = ("failed", "progress", "started", "stopped", "waiting", "finished")
    counts = {kind: sum(status.kind == kind for status in statuses) for kind in order}
    running = counts["progress"] + counts["started"]
    table = Table(
        caption=f"{counts['finished']} of {len(statuses)} finished, {running} running, {counts['waiting']} waiting, "
        f"{counts['failed']} failed"
    )
    for heading in ("cell", "state", "steps", "where", "updated", "problem"):
        table.add_column(heading, no_wrap=heading != "problem")
    for status in sorted(statuses, key=lambda status: (order.index(status.kind), status.job)):
        again = f" (attempt {status.attempt})" if status.attempt > 1 else ""
        table.add_row(
            status.job,
            ("running" if status.is_running else status.kind) + again,
            f"{status.done} of {status.total}" if status.total else "",
            status.where,
            _ago(now - status.updated),
            status.problem,
        )
    return table


def _ago(seconds: float) -> str:
    """How long ago; clocks of two machines may differ a little.

    Example:
        >>> [_ago(seconds) for seconds in (-1, 59, 150, 7300)]
        ['0 s ago', '59 s ago', '2 min ago', '2 h ago']
    """
    if seconds < 60:
        return f"{max(0, int(seconds))} s ago"
    return f"{int(seconds / 60)} min ago" if seconds < 3600 else f"{int(seconds / 3600)} h ago"
