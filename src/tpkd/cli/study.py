"""`tpkd study`: the mechanism studies, on the snapshots of a trained run or on files of weights."""

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
    help="Look at states of a student: what is blocked, what a protected step keeps, and what it adds up to.",
    no_args_is_help=True,
)

Config = Annotated[Path, typer.Argument(help="The run; its CE student is studied unless overrides say otherwise.")]
RunDirectory = Annotated[Path | None, typer.Option("--run", help="Where the run is kept, if not where CONFIG says.")]
States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="NAME=WEIGHTS",
        help="Study this file (.safetensors, .pth, .pt, .bin) or checkpoint directory instead of a run's snapshots; "
        "may be repeated. Names of another code base: student.weight_map.",
    ),
]
Optimizers = Annotated[
    list[str] | None,
    typer.Option(
        "--optimizer-state",
        metavar="NAME=FILE",
        help="The optimiser of a --state: a state dict of torch or a checkpoint directory; for certificates and "
        "continuation, which start with a fresh one without it.",
    ),
]
Out = Annotated[
    Path | None, typer.Option(help="Write the record here, and no tables, instead of into the run's studies/.")
]


def _add(name: str, question: str, setting: str) -> None:
    """Register a study command; all studies take the same arguments."""
    example = f"tpkd study {name} configs/digits.yaml study.{name.replace('-', '_')}.{setting}"
    with_state = f"tpkd study {name} configs/digits.yaml --state CE20=weights.pth"

    @study.command(name, help=f"{question}\n\nExample: {example}\n\nExample: {with_state}")
    def verb(
        config: Config,
        overrides: Overrides = None,
        run: RunDirectory = None,
        state: States = None,
        optimizer_state: Optimizers = None,
        out: Out = None,
    ) -> None:
        _study(name, config, overrides, run, (state or [], optimizer_state or []), out)


_add("blocking", "How often full imitation is blocked, and what is left to learn there.", "samples=500")
_add("exact-head", "What steps of the classifier alone learn and keep, on frozen features.", "batch_size=32")
_add("certificates", "Whether the conditional advantage survives ordinary backpropagation.", "batches=4")
_add("continuation", "Whether the advantage of one step accumulates over many.", "iterations=32")


def _study(
    name: str,
    config: Path,
    overrides: list[str] | None,
    run: Path | None,
    files: tuple[list[str], list[str]],
    out: Path | None,
) -> None:
    with extra("train"):
        from tpkd.compare.reporting import catalogue
        from tpkd.mechanism.given import parse_states
        from tpkd.mechanism.studies import run_study, study_path, write_tables
    states = parse_states(*files)
    with config_errors(config):
        loaded = read_config(config, [("objective", "ce"), *(overrides or ())])
        with counted(name, parts=4) as on_progress:
            record = run_study(name, loaded, run, states=states, out=out, on_progress=on_progress)
    table = study_table(record, catalogue().title)
    Console().print(_rich(table))
    place = out or study_path(name, run or loaded.directory, given=bool(states))
    tables = "" if out else f", and as {', '.join(path.suffix for path in write_tables(table, place))}"
    say(*table.notes, *study_notes(record), f"written: {place}{tables}")
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
