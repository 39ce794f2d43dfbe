"""`tpkd cache`: build, import, inspect and verify a teacher cache."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tpkd.cli.console import say
from tpkd.cli.interruption import interruptible
from tpkd.cli.options import Overrides, config_errors, read_config
from tpkd.cli.progress import display
from tpkd.errors import extra
from tpkd.teacher.cache.build import BuildProgress
from tpkd.teacher.cache.description import compare_sizes, describe_kept
from tpkd.teacher.cache.recipe import is_imported
from tpkd.teacher.cache.verify import CacheInfo, cache_info

cache = typer.Typer(help="Cache a teacher's outputs, so that it never runs twice.", no_args_is_help=True)

Network = Annotated[
    str, typer.Option(help="Network to cache: teacher, or initial for the untrained student (DP-U and DP-S).")
]


@cache.command()
def build(
    config: Annotated[Path, typer.Argument(help="The run that will read the cache.")],
    overrides: Overrides = None,
    network: Network = "teacher",
) -> None:
    """Run the network, or each of several teachers, once on every training sample in every view.

    An interrupted build continues.

    Example: tpkd cache build configs/digits.yaml
    """
    with extra("train"):
        from tpkd.teacher.caching import build_all
    with config_errors(config):
        loaded = read_config(config, overrides)
        with interruptible(), _progress() as on_progress:
            built = build_all(loaded, network, on_progress=on_progress, on_note=partial(say, error=True))
    for directory in built:
        _print(cache_info(directory))


@cache.command("import")
def import_(
    logits: Annotated[
        Path,
        typer.Argument(
            help="Logits or log-probabilities of the training samples, (N, K) or (N, views, K): .npy, .npz, "
            ".safetensors, .pt, .csv, .tsv or .parquet; or log_probs, indices, label_log_probs and rest_log_probs."
        ),
    ],
    config: Annotated[Path, typer.Option(help="The run that will read the cache; teacher.cache is where it goes.")],
    overrides: Overrides = None,
    ids: Annotated[
        Path | None,
        typer.Option(help="Sample id of each row: lines, JSON list, array. Default: in the order of the data."),
    ] = None,
    teacher: Annotated[int | None, typer.Option(help="Which of several teachers, counted from 0.", min=0)] = None,
) -> None:
    """Make logits that you already have the cache of a teacher; the run then needs no teacher model.

    Example: tpkd cache import logits.npy --config configs/demo.yaml 'teacher={cache: runs/imported}'
    """
    with extra("train"):
        from tpkd.importing.run import import_logits
    with config_errors(config):
        loaded = read_config(config, overrides)
        with interruptible(), _progress() as on_progress:
            found = import_logits(
                loaded, logits, ids, teacher=teacher, on_progress=on_progress, on_note=partial(say, error=True)
            )
    if found.was_complete:
        say(f"{found.directory}: already imported from these files, nothing to do")
    _print(cache_info(found.directory))


@cache.command()
def verify(
    directory: Annotated[Path, typer.Argument(help="A cache.")],
    config: Annotated[
        Path | None,
        typer.Option(help="A run configuration: compare its recipe, and recompute some rows with its network."),
    ] = None,
    overrides: Overrides = None,
    network: Network = "teacher",
    sample: Annotated[int, typer.Option(help="Number of rows to recompute.", min=1)] = 32,
) -> None:
    """Check every byte of a cache and, with a configuration, that the network still gives the same outputs.

    Example: tpkd cache verify runs/digits-cache --config configs/digits.yaml
    """
    with extra("train"):
        from tpkd.teacher.caching import verify as verify_from
    if config is None:
        report = verify_from(directory)
    else:
        with config_errors(config):
            report = verify_from(directory, read_config(config, overrides), network, sample=sample)
    say(*report.problems)
    again = f"{report.rows_recomputed} computed again" if report.rows_recomputed else "none computed again"
    largest = "" if report.max_difference is None else f", largest difference {report.max_difference:.2g}"
    verdict = "sound" if report.passes else "not sound"
    say(f"{verdict}: {report.rows_written} rows in {report.shards} shards, {again}{largest}")
    if not report.passes:
        raise typer.Exit(1)


@cache.command()
def info(
    directory: Annotated[Path, typer.Argument(help="A cache, finished or not.")],
    json: Annotated[bool, typer.Option("--json", help="Print every field as JSON.")] = False,
) -> None:
    """Show what a cache contains and how it was computed.

    Example: tpkd cache info runs/digits-cache
    """
    found = cache_info(directory)
    if json:
        say(found.to_json(), end="")
    else:
        _print(found)


def _print(found: CacheInfo) -> None:
    recipe = found.recipe
    size = f"{found.bytes / 1e6:.1f} MB in {found.shards} shards"
    if found.full_bytes is not None:
        size = f"{compare_sizes(found.bytes, found.full_bytes)}; {found.shards} shards"
    rows = {
        "rows": f"{found.rows_written} of {found.rows} ({found.samples} samples × {found.views} views)",
        "logits" if recipe.top_k is None else "kept": describe_kept(recipe),
        "further tensors": ", ".join(f"{name} ({width})" for name, width in found.tensors.items()) or "none",
        "size": size,
        "network": recipe.model_fingerprint,
        **({"imported from": str(found.model_source)} if is_imported(recipe) else {}),
        "data": recipe.dataset_fingerprint,
        "preprocessing": ", ".join(f"{name} {value}" for name, value in recipe.preprocessing.items()) or "none",
        "class map": "none" if recipe.class_map is None else f"from {len(recipe.class_map['teacher_names'])} classes",
        "versions": ", ".join(f"{name} {value}" for name, value in recipe.versions.items()) or "none",
        "fingerprint": found.fingerprint,
    }
    table = Table(title=escape(str(found.directory)), show_header=False)
    table.add_column("field", no_wrap=True)
    table.add_column("value", overflow="fold")
    for name, value in rows.items():
        table.add_row(name, escape(value))
    Console().print(table)


@contextmanager
def _progress() -> Iterator[Callable[[BuildProgress], None]]:
    """Size first, a time estimate after the first rows, then a bar on a terminal or a line per tenth in a log."""
    with display() as show:
        begun = timed = False
        last = 0

        def advance(progress: BuildProgress) -> None:
            nonlocal begun, timed, last
            done, total = progress.rows_done, progress.rows_total
            if done < last:  # the cache of the next teacher
                begun = timed = False
            last = done
            minutes = None if progress.seconds_left is None else f"{progress.seconds_left / 60:.1f} minutes"
            show.update("rows", done, total, f"{done} of {total} rows, {minutes} left" if timed else "", parts=10)
            if not begun:
                show.line(f"building {total} rows, {progress.bytes_total / 1e6:.1f} MB, {done} rows written already")
            elif minutes is not None and not timed:
                show.line(f"about {minutes} at the speed of the first rows")
                timed = True
            begun = True

        yield advance
