"""`tpkd study`: the mechanism studies on the snapshots of a trained run."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable

from tpkd.cli.console import say
from tpkd.cli.options import Overrides, config_errors, read_config
from tpkd.cli.progress import counted
from tpkd.errors import extra
from tpkd.mechanism.tables import study_notes, study_table
from tpkd.report.tables import Table, text

study = typer.Typer(
    help="Look at the snapshots of a CE run: what is blocked, what a protected step keeps, and what it adds up to.",
    no_args_is_help=True,
)

Config = Annotated[Path, typer.Argument(help="The run; its CE student is studied unless overrides say otherwise.")]
RunDirectory = Annotated[Path | None, typer.Option("--run", help="Where the run is kept, if not where CONFIG says.")]
Out = Annotated[Path | None, typer.Option(help="Write the record here instead of into the run's studies/.")]


def _add(name: str, question: str, setting: str) -> None:
    """Register a study command; all studies take the same arguments."""
    example = f"tpkd study {name} configs/digits.yaml study.{name.replace('-', '_')}.{setting}"

    @study.command(name, help=f"{question}\n\nExample: {example}")
    def verb(config: Config, overrides: Overrides = None, run: RunDirectory = None, out: Out = None) -> None:
        _study(name, config, overrides, run, out)


_add("blocking", "How often full imitation is blocked, and what is left to learn there.", "samples=500")
_add("exact-head", "What steps of the classifier alone learn and keep, on frozen features.", "batch_size=32")
_add("certificates", "Whether the conditional advantage survives ordinary backpropagation.", "batches=4")
_add("continuation", "Whether the advantage of one step accumulates over many.", "iterations=32")


def _study(name: str, config: Path, overrides: list[str] | None, run: Path | None, out: Path | None) -> None:
    with extra("train"):
        from tpkd.compare.reporting import catalogue
        from tpkd.mechanism.studies import run_study, study_path
    with config_errors(config):
        loaded = read_config(config, [("objective", "ce"), *(overrides or ())])
        with counted(name, parts=4) as on_progress:
            record = run_study(name, loaded, run, out=out, on_progress=on_progress)
    table = study_table(record, catalogue().title)
    Console().print(_rich(table))
    say(*table.notes, *study_notes(record), f"written: {out or study_path(name, run or loaded.directory)}")
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
