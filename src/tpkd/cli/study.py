"""`tpkd study`: the mechanism studies on the snapshots of a trained run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable

from tpkd.cli.train import config_errors, read_config
from tpkd.errors import extra
from tpkd.mechanism.tables import study_notes, study_table
from tpkd.report.tables import Table, text

study = typer.Typer(
    help="Look at the snapshots of a CE run: what is blocked, what a protected step keeps, and what it adds up to.",
    no_args_is_help=True,
)

Config = Annotated[Path, typer.Argument(help="The run; its CE student is studied unless overrides say otherwise.")]
Overrides = Annotated[list[str] | None, typer.Argument(help="key=value, dotted keys.", show_default=False)]
RunDirectory = Annotated[Path | None, typer.Option("--run", help="Where the run is kept, if not where CONFIG says.")]
Out = Annotated[Path | None, typer.Option(help="Write the record here instead of into the run's studies/.")]


@study.command()
def blocking(config: Config, overrides: Overrides = None, run: RunDirectory = None, out: Out = None) -> None:
    """How often full imitation is blocked, and what is left to learn there.

    Example: tpkd study blocking configs/digits.yaml study.blocking.samples=500
    """
    _study("blocking", config, overrides, run, out)


@study.command()
def exact_head(config: Config, overrides: Overrides = None, run: RunDirectory = None, out: Out = None) -> None:
    """What steps of the classifier alone learn and keep, on frozen features.

    Example: tpkd study exact-head configs/digits.yaml study.exact_head.batch_size=32
    """
    _study("exact-head", config, overrides, run, out)


@study.command()
def certificates(config: Config, overrides: Overrides = None, run: RunDirectory = None, out: Out = None) -> None:
    """Whether the conditional advantage survives ordinary backpropagation.

    Example: tpkd study certificates configs/digits.yaml study.certificates.batches=4
    """
    _study("certificates", config, overrides, run, out)


@study.command()
def continuation(config: Config, overrides: Overrides = None, run: RunDirectory = None, out: Out = None) -> None:
    """Whether the advantage of one step accumulates over many.

    Example: tpkd study continuation configs/digits.yaml study.continuation.iterations=32
    """
    _study("continuation", config, overrides, run, out)


def _study(name: str, config: Path, overrides: list[str] | None, run: Path | None, out: Path | None) -> None:
    with extra("train"):
        from tpkd.mechanism.studies import run_study, study_path
    with config_errors(config):
        loaded = read_config(config, [("objective", "ce"), *(overrides or ())])
        with _progress(name) as on_progress:
            record = run_study(name, loaded, run, out=out, on_progress=on_progress)
    console, table = Console(), study_table(record)
    console.print(_rich(table))
    written = out or study_path(name, run or loaded.directory)
    for line in (*table.notes, *study_notes(record), f"written: {written}"):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if record.violations:
        raise typer.Exit(1)


def _rich(table: Table) -> RichTable:
    rich = RichTable(title=table.caption, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for column in table.columns:
        whole_words = max(map(len, column.title.split()))
        justify: Literal["left", "right"] = "left" if column.text else "right"
        rich.add_column(column.title, justify=justify, overflow="fold", min_width=whole_words)
    for row in table.rows:
        rich.add_row(*map(text, row))
    return rich


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, a line a quarter in a log."""
    console = Console(stderr=True)
    if not console.is_terminal:
        quarter = 0

        def announce(done: int, total: int) -> None:
            nonlocal quarter
            if 4 * done // total > quarter:
                console.print(f"{name}: {done} of {total}", highlight=False)
            quarter = 4 * done // total

        yield announce
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, total=total, completed=done)
