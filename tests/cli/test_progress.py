"""What a log says of the progress of a command; a bar is seen on a terminal alone."""

import io
from datetime import datetime, timedelta

from rich.console import Console
from rich.progress import Progress

from tpkd.cli.progress import Display, counted, display, grid_progress
from tpkd.executors.jobs import JobEvent


def test_a_stage_is_done_once(capsys):
    """Its last step tells, and then its end, which alone tells of one that was done before."""
    with grid_progress() as watcher:
        for name, done in (("teacher", 1), ("teacher", 2), ("teacher", 2), ("figures", 2)):
            watcher.on_stage(name, done, 2)
    assert capsys.readouterr().err.splitlines() == ["teacher: done", "figures: done"]


def test_a_log_has_one_line_for_each_part_of_the_way(capsys):
    with counted("blocking", parts=4) as advance:
        for done in range(1, 9):
            advance(done, 8)
    assert capsys.readouterr().err.splitlines() == [f"blocking: {done} of 8" for done in (2, 4, 6, 8)]


def test_a_log_takes_no_text_for_markup(capsys):
    with display() as show:
        show.line("runs/[bold]a")
        show.update("x", 1, 1)
    assert capsys.readouterr().err == "runs/[bold]a\n"


def test_cells_are_counted_and_a_failure_says_why(capsys):
    with grid_progress() as watcher:
        watcher.on_plan(1, 2)
        watcher.on_cell(JobEvent("started", "ce-42"))
        watcher.on_cell(JobEvent("progress", "ce-42", 3, 10))
        watcher.on_cell(JobEvent("finished", "ce-42"))
        watcher.on_cell(JobEvent("failed", "kd-42", problem="no such file"))
    assert capsys.readouterr().err.splitlines() == [
        "1 cells finished already, 2 to run",
        "ce-42 started",
        "ce-42 finished (1 of 2)",
        "kd-42 failed (2 of 2): no such file",
    ]


def test_a_terminal_has_bars_instead_of_lines():
    bars = Progress(console=Console(file=io.StringIO(), force_terminal=True))
    show = Display(bars)
    show.update("rows", 3, 10, "3 of 10 rows", parts=10)
    show.update("rows", 4, 10, "4 of 10 rows", parts=10, title="rows of the cache")
    (task,) = bars.tasks
    assert (task.description, task.completed, task.total) == ("rows of the cache", 4, 10)
    show.log("seen by nobody")
    show.line("said by all")
    assert "said by all" in bars.console.file.getvalue()
    assert "seen by nobody" not in bars.console.file.getvalue()
    show.remove("rows")
    assert not bars.tasks


class Clock:
    """Time that passes when a test says so."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds

    def today(self):
        return datetime(2026, 3, 1, 12) + timedelta(seconds=self.seconds)


def play(watcher, clock, minutes=10):
    """Two cells side by side, a third waiting: one step a second, a report every second."""
    watcher.on_plan(1, 3)
    for cell in ("ce-42", "kd-42"):
        watcher.on_cell(JobEvent("started", cell))
    for second in range(1, 60 * minutes + 1):
        clock.seconds = second
        for cell in ("ce-42", "kd-42"):
            watcher.on_cell(JobEvent("progress", cell, second, 600))


def test_a_log_says_how_far_the_cells_are_and_when_the_grid_ends(capsys):
    clock = Clock()
    with grid_progress(clock, clock.today) as watcher:
        play(watcher, clock)
        watcher.on_cell(JobEvent("finished", "ce-42"))
    lines = capsys.readouterr().err.splitlines()
    told = [line for line in lines if "of their steps" in line]
    # Every 30 seconds, and after each tenth of the 1,800 steps: every 90 s with two cells side by side.
    assert 20 <= len(told) <= 30
    assert told[0] == ("0 of 3 cells, 3% of their steps; ce-42 30/600, kd-42 29/600; about 19 min left, ends 12:20")
    assert lines[-1] == "ce-42 finished (1 of 3)"


def test_a_terminal_shows_every_running_cell_and_the_end_of_the_grid(monkeypatch):
    seen = io.StringIO()
    console = Console(file=seen, force_terminal=True, width=120)
    monkeypatch.setattr("tpkd.cli.progress.Console", lambda **options: console)
    clock = Clock()
    with grid_progress(clock, clock.today) as watcher:
        play(watcher, clock, minutes=1)
        watcher.on_cell(JobEvent("finished", "kd-42"))
    shown = seen.getvalue()
    assert "of their steps" not in shown, "lines are for a log"
    last = shown[shown.rindex("cells") :]
    assert "2/4" in last
    assert "about 10 min left, ends 12:11" in last
    assert "ce-42" in last
    assert "60/600" in last
    assert "kd-42" not in last


def test_a_long_stage_has_lines_with_its_end(capsys):
    clock = Clock()
    with grid_progress(clock, clock.today) as watcher:
        for done in range(1001):
            clock.seconds = 0.1 * done
            watcher.on_stage("teacher cache", done, 1000)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "teacher cache: 100 of 1,000, about 1 min left, ends 12:01"
    assert len(lines) == 10
    assert lines[-1] == "teacher cache: done"
