"""`tpkd compare --sweep`: settings of objectives, compared on the validation part."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from tpkd.cli.console import say
from tpkd.cli.interruption import interruptible
from tpkd.cli.options import config_errors
from tpkd.cli.progress import grid_progress
from tpkd.errors import extra
from tpkd.report.tables import Table, text

if TYPE_CHECKING:
    from tpkd.compare.sweep_record import SweepRecord


def compare_settings(
    config: Path,
    overrides: Sequence[str],
    sweeps: Sequence[str],
    methods: list[str] | None,
    seeds: list[int],
    **options: Any,
) -> None:
    """Run a sweep and print its table, then the best settings as they go into the configuration.

    Args:
        config: the configuration.
        overrides: for every run.
        sweeps: `NAME=VALUE,VALUE`.
        methods: names of objectives, None for all that have one of the settings.
        seeds: of every combination.
        options: what `run_sweep` takes.
    """
    with extra("train"):
        from tpkd.compare.reporting import catalogue
        from tpkd.compare.sweep_record import SWEEP_RECORD_NAME
        from tpkd.compare.sweep_run import open_sweep, run_sweep
        from tpkd.compare.sweep_tables import sweep_table
    with config_errors(config):
        sweep = open_sweep(config, overrides, sweeps, methods=methods, seeds=seeds)
        with interruptible(lambda: "what is finished stays, the same command continues"), grid_progress() as watcher:
            record = run_sweep(sweep, watcher=watcher, **options)
    shown = sweep_table(record, catalogue().title)
    Console().print(_on_terminal(shown))
    say(shown.caption, *shown.notes)
    unfinished = [(trial, cell) for trial in record.trials for cell in trial.cells if cell.status != "finished"]
    for trial, cell in unfinished:
        say(f"{trial.name}, seed {cell.seed}, {cell.status}: {cell.problem or 'not run yet'}")
    say(f"written: {sweep.home / SWEEP_RECORD_NAME}, {sweep.home / 'tables'}/{shown.name}.md")
    _say_best(record, config)
    if any(cell.status == "failed" for _, cell in unfinished):
        raise typer.Exit(1)


def _on_terminal(table: Table) -> RichTable:
    shown = RichTable()
    for column in table.columns:
        shown.add_column(column.title, justify="left" if column.text else "right")
    for place, row in enumerate(table.rows):
        shown.add_row(*(Text(text(content)) for content in row), style="bold" if place in table.emphasis else None)
    return shown


def _say_best(record: "SweepRecord", config: Path) -> None:
    import yaml

    from tpkd.compare.sweep_tables import methods_section

    best = methods_section(record)
    if best:
        say(f"the best settings, for the section `methods` of {config}:", "")
        say(yaml.safe_dump({"methods": best}, sort_keys=False, allow_unicode=True, default_flow_style=None).rstrip())
