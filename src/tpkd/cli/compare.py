"""`tpkd compare`: objectives × seeds from one configuration."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from tpkd.cli.console import say
from tpkd.cli.executors import Address, Cpus, Gpus, Resources, executor_for
from tpkd.cli.interruption import interruptible
from tpkd.cli.options import Overrides, config_errors, split, whole_numbers
from tpkd.cli.progress import grid_progress
from tpkd.cli.status import show_status
from tpkd.cli.sweep import compare_settings
from tpkd.errors import extra
from tpkd.report.numbers import percent, points

if TYPE_CHECKING:
    from tpkd.compare.record import ComparisonRecord


def compare(
    config: Annotated[
        Path,
        typer.Argument(
            help="A run whose `output` names {objective} and {seed}, see configs/; with --status, a grid's directory."
        ),
    ],
    overrides: Overrides = None,
    methods: Annotated[
        str | None, typer.Option(help="Comma-separated names from `tpkd methods`, or of `variants`; default: all.")
    ] = None,
    seeds: Annotated[str, typer.Option(help="Comma-separated seeds.")] = "42,43,44",
    jobs: Annotated[
        int, typer.Option(help="Cells to run in parallel; 0 = one per GPU, or one per core without one.", min=0)
    ] = 0,
    restart_changed: Annotated[
        bool, typer.Option("--restart-changed", help="Set runs with a different configuration aside and rerun them.")
    ] = False,
    on: Annotated[str, typer.Option(help="Where cells run: local, ray or slurm; see docs/cluster.md.")] = "local",
    address: Address = None,
    cpus: Cpus = 1,
    gpus: Gpus = 0,
    partition: Annotated[str | None, typer.Option(help="Of SLURM.")] = None,
    minutes: Annotated[int, typer.Option(help="Time limit of a SLURM job; it is requeued and continues.", min=1)] = 240,
    submitit: Annotated[
        str, typer.Option(help="slurm, or local to try --on slurm on a machine without SLURM.")
    ] = "slurm",
    status: Annotated[bool, typer.Option("--status", help="Show the cells of a grid's directory and exit.")] = False,
    sweep: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE,VALUE: compare settings on validation data. May be repeated."),
    ] = None,
) -> None:
    """Train every objective with every seed from the same start, and compare accuracy after the last epoch.

    Finished cells never run again: the same command continues an interrupted grid and reruns failed cells.

    With --sweep, each objective is trained with every combination of the values, as far as it has these settings. NAME
    is a setting such as beta, rate for the learning rate, or a key such as optimizer.momentum. The table shows the
    validation part and never the test split; data.validation=0.1 holds out a part where the data have none.

    Example: tpkd compare configs/cpu-text.yaml epochs=1 limit=2000 --methods ce,kd,tpkd --seeds 42,43

    Example: tpkd compare configs/digits.yaml data.validation=0.1 --methods tpkd --sweep beta=0.5,1 --sweep rate=0.1,0.2
    """
    if status:
        show_status(config)
        return
    chosen = None if methods is None else split(methods)
    executor = executor_for(on, Resources(jobs, cpus, gpus, address, partition, minutes, submitit))
    if sweep:
        options = {"executor": executor, "restart_changed": restart_changed}
        compare_settings(config, overrides or [], sweep, chosen, whole_numbers("--seeds", seeds), **options)
        return
    with extra("train"):
        from tpkd.compare.run import RECORD_NAME, open_grid
        from tpkd.compare.run import compare as run_grid
    with config_errors(config):
        grid = open_grid(config, overrides or [], methods=chosen, seeds=whole_numbers("--seeds", seeds))
        with interruptible(lambda: "what is finished stays, the same command continues"), grid_progress() as watcher:
            record = run_grid(grid, executor=executor, restart_changed=restart_changed, watcher=watcher)
    Console().print(comparison_table(record))
    if record.stamp:
        say(record.stamp)
    for cell in record.cells:
        if cell.status != "finished":
            say(f"{cell.name} {cell.status}: {cell.problem or 'not run yet'}")
    say(f"written: {grid.directory / RECORD_NAME}", f"next: tpkd report {shlex.quote(str(grid.directory))}")
    if any(cell.status == "failed" for cell in record.cells):
        raise typer.Exit(1)


def comparison_table(record: "ComparisonRecord") -> Table:
    """Mean and standard deviation of every objective, and its paired difference from KD."""
    table = Table(caption="test accuracy in %, mean ± sample standard deviation; interval over seeds, not corrected")
    validated = any(method.validation_mean is not None for method in record.methods)
    validation = ("validation",) if validated else ()
    for heading in ("objective", "seeds", "accuracy", *validation, "minus KD", "95 % interval"):
        table.add_column(heading, justify="left" if heading == "objective" else "right", no_wrap=True)
    for method in record.methods:
        versus = next((pair for pair in method.versus if pair.reference == "kd"), None)
        interval = "" if versus is None or versus.low is None else f"{points(versus.low)} to {points(versus.high)}"
        table.add_row(
            method.objective,
            f"{len(method.seeds)} of {len(method.asked_seeds)}",
            _spread(method.mean, method.standard_deviation),
            *([_spread(method.validation_mean, method.validation_standard_deviation)] if validated else []),
            "" if versus is None else points(versus.mean),
            interval,
        )
    return table


def _spread(mean: float | None, deviation: float | None) -> str:
    return percent(mean) + ("" if deviation is None else f" ± {percent(deviation)}")  # one seed has none
