"""What a log says of the progress of a command; a bar is seen on a terminal alone."""

import io

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
