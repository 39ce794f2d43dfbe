"""`tpkd cache`: build a teacher's cache, look at one, check one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tpkd.cli.interruption import interruptible
from tpkd.cli.train import config_errors, read_config
from tpkd.errors import extra
from tpkd.teacher.cache.build import BuildProgress
from tpkd.teacher.cache.verify import CacheInfo, cache_info

cache = typer.Typer(help="Keep a teacher's answers, so that it never runs twice.", no_args_is_help=True)

Network = Annotated[
    str, typer.Option(help="Whose answers: teacher, or initial for the student at its start (DP-U and DP-S).")
]
Overrides = Annotated[list[str] | None, typer.Argument(help="key=value, dotted keys.", show_default=False)]


@cache.command()
def build(
    config: Annotated[Path, typer.Argument(help="The run that will read the cache.")],
    overrides: Overrides = None,
    network: Network = "teacher",
) -> None:
    """Compute every training sample in every view once; a build that was interrupted continues.

    Example: tpkd cache build configs/digits.yaml
    """
    with extra("train"):
        from tpkd.teacher.caching import build as build_from
    with config_errors(config):
        loaded = read_config(config, overrides)
        with interruptible(), _progress() as on_progress:
            directory = build_from(loaded, network, on_progress=on_progress, on_note=_note)
    _print(cache_info(directory))


@cache.command()
def verify(
    directory: Annotated[Path, typer.Argument(help="A cache.")],
    config: Annotated[
        Path | None, typer.Option(help="A run: compare its recipe, and compute some rows again with its network.")
    ] = None,
    overrides: Overrides = None,
    network: Network = "teacher",
    sample: Annotated[int, typer.Option(help="How many rows to compute again.", min=1)] = 32,
) -> None:
    """Check every byte of a cache and, with a configuration, that the network still says the same.

    Example: tpkd cache verify runs/digits-cache --config configs/digits.yaml
    """
    with extra("train"):
        from tpkd.teacher.caching import verify as verify_from
    if config is None:
        report = verify_from(directory)
    else:
        with config_errors(config):
            report = verify_from(directory, read_config(config, overrides), network, sample=sample)
    console = Console()
    for problem in report.problems:
        console.print(problem, highlight=False, markup=False, soft_wrap=True)
    again = f"{report.rows_recomputed} computed again" if report.rows_recomputed else "none computed again"
    largest = "" if report.max_difference is None else f", largest difference {report.max_difference:.2g}"
    verdict = "sound" if report.passes else "not sound"
    line = f"{verdict}: {report.rows_written} rows in {report.shards} shards, {again}{largest}"
    console.print(line, highlight=False, markup=False, soft_wrap=True)
    if not report.passes:
        raise typer.Exit(1)


@cache.command()
def info(
    directory: Annotated[Path, typer.Argument(help="A cache, finished or not.")],
    json: Annotated[bool, typer.Option("--json", help="Print every field as JSON.")] = False,
) -> None:
    """Say what a cache holds and what it was computed from.

    Example: tpkd cache info runs/digits-cache
    """
    found = cache_info(directory)
    if json:
        Console().print(found.to_json(), highlight=False, markup=False, soft_wrap=True, end="")
    else:
        _print(found)


def _print(found: CacheInfo) -> None:
    recipe = found.recipe
    rows = {
        "rows": f"{found.rows_written} of {found.rows} ({found.samples} samples × {found.views} views)",
        "logits": f"{found.num_classes} classes, {found.dtype}",
        "further tensors": ", ".join(f"{name} ({width})" for name, width in found.tensors.items()) or "none",
        "size": f"{found.bytes / 1e6:.1f} MB in {found.shards} shards",
        "network": recipe.model_fingerprint,
        "data": recipe.dataset_fingerprint,
        "preprocessing": ", ".join(f"{name} {value}" for name, value in recipe.preprocessing.items()) or "none",
        "class map": "none" if recipe.class_map is None else f"from {len(recipe.class_map['teacher_names'])} classes",
        "versions": ", ".join(f"{name} {value}" for name, value in recipe.versions.items()),
        "fingerprint": found.fingerprint,
    }
    table = Table(title=escape(str(found.directory)), show_header=False)
    table.add_column("field", no_wrap=True)
    table.add_column("value", overflow="fold")
    for name, value in rows.items():
        table.add_row(name, escape(value))
    Console().print(table)


def _note(sentence: str) -> None:
    Console(stderr=True).print(sentence, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def _progress() -> Iterator[Callable[[BuildProgress], None]]:
    """Bytes first, minutes after the first rows, then a bar on a terminal and a line a tenth in a log."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("rows"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console, transient=True
    )
    task = bar.add_task("rows", total=None)
    tenth, timed = -1, False

    def advance(progress: BuildProgress) -> None:
        nonlocal tenth, timed
        bar.update(task, total=progress.rows_total, completed=progress.rows_done)
        now = 10 * progress.rows_done // progress.rows_total
        minutes = None if progress.seconds_left is None else f"{progress.seconds_left / 60:.1f} minutes"
        if tenth < 0:
            size = f"{progress.rows_total} rows, {progress.bytes_total / 1e6:.1f} MB"
            console.print(f"building {size}, {progress.rows_done} rows written already", highlight=False)
        elif minutes is not None and not timed:
            console.print(f"about {minutes} at the speed of the first rows", highlight=False)
            timed = True
        elif now > tenth and not console.is_terminal:
            console.print(f"{progress.rows_done} of {progress.rows_total} rows, {minutes} left", highlight=False)
        tenth = max(now, 0)

    if console.is_terminal:
        with bar:
            yield advance
    else:
        yield advance
