"""`tpkd cache`: plan, build, merge, import, inspect and verify a teacher cache."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tpkd.cli.console import say
from tpkd.cli.executors import Address, Cpus, Gpus, Resources, executor_for
from tpkd.cli.interruption import interruptible
from tpkd.cli.options import Overrides, config_errors, read_config, read_tokens_config, reads_tokens
from tpkd.cli.progress import counted, display
from tpkd.errors import InputError, extra
from tpkd.teacher.cache.build import BuildProgress
from tpkd.teacher.cache.description import compare_sizes, describe_kept, sized
from tpkd.teacher.cache.merge import merge_parts
from tpkd.teacher.cache.parts import Part
from tpkd.teacher.cache.plan import CacheEstimate
from tpkd.teacher.cache.recipe import is_imported
from tpkd.teacher.cache.remote import readable_cache
from tpkd.teacher.cache.shards import SHARD_BYTES
from tpkd.teacher.cache.verify import CacheInfo, cache_info

if TYPE_CHECKING:
    from tpkd.executors.jobs import JobEvent
    from tpkd.teacher.planning import CacheForecast

cache = typer.Typer(help="Cache a teacher's outputs, so that it never runs twice.", no_args_is_help=True)

Network = Annotated[
    str, typer.Option(help="Network to cache: teacher, or initial for the untrained student (DP-U and DP-S).")
]


HELD_OUT = "held-out"
"""The network of a language model's configuration that names the held-out text."""

ShardBytes = Annotated[int, typer.Option(help="The most that a file of a new cache takes.", min=1)]


@cache.command()
def build(
    config: Annotated[Path, typer.Argument(help="The run that will read the cache.")],
    overrides: Overrides = None,
    network: Network = "teacher",
    part: Annotated[
        str | None,
        typer.Option(help="I/N: build the I-th of N parts, in CACHE.part-I-of-N; `tpkd cache merge` joins them."),
    ] = None,
    shard_bytes: ShardBytes = SHARD_BYTES,
    on: Annotated[
        str | None,
        typer.Option(help="Build with several workers: local processes, or ray; see docs/cluster.md."),
    ] = None,
    workers: Annotated[int, typer.Option(help="Number of parts and workers, with --on.", min=1)] = 2,
    address: Address = None,
    cpus: Cpus = 1,
    gpus: Gpus = 0,
) -> None:
    """Run the network, or each of several teachers, once on every training sample in every view.

    An interrupted build continues. Of a language model's text, `--network held-out` caches the held-out part.

    Example: tpkd cache build configs/digits.yaml

    Example: tpkd cache build configs/digits.yaml --part 1/4

    Example: tpkd cache build configs/digits.yaml --on ray --workers 8
    """
    if on is not None:
        if reads_tokens(config):
            raise InputError(
                "--on: expected none for a language model; --part I/N and `tpkd cache merge` split its build"
            )
        if part is not None:
            raise InputError("--part: expected none beside --on, which builds all parts")
        resources = Resources(workers, cpus, gpus, address)
        _build_on(on, resources, config, overrides, network, workers, shard_bytes)
        return
    with extra("train"):
        from tpkd.teacher.caching import build_all
    chosen = None if part is None else Part.parse(part)
    if reads_tokens(config):
        _build_tokens(config, overrides, network, chosen, shard_bytes)
        return
    with config_errors(config):
        loaded = read_config(config, overrides)
        with interruptible(), _progress() as on_progress:
            built = build_all(
                loaded,
                network,
                part=chosen,
                shard_bytes=shard_bytes,
                on_progress=on_progress,
                on_note=partial(say, error=True),
            )
    for directory in built:
        _print(cache_info(directory))


def _build_tokens(config: Path, overrides: Overrides, network: str, part: Part | None, shard_bytes: int) -> None:
    """Build the cache of a language model."""
    if network not in ("teacher", HELD_OUT):
        raise InputError(f"--network: expected teacher or {HELD_OUT} for a language model, found {network!r}")
    from tpkd.tokens.cache import build_token_cache

    with config_errors(config):
        loaded = read_tokens_config(config, overrides)
        with interruptible(), _progress() as on_progress:
            directory = build_token_cache(
                loaded,
                held_out=network == HELD_OUT,
                part=part,
                shard_bytes=shard_bytes,
                on_progress=on_progress,
                on_note=partial(say, error=True),
            )
    _print(cache_info(directory))


def _build_on(
    on: str,
    resources: Resources,
    config: Path,
    overrides: Overrides,
    network: str,
    workers: int,
    shard_bytes: int,
) -> None:
    """Build with several workers, and merge what they have built."""
    with extra("train"):
        from tpkd.teacher.in_parts import build_in_parts
    if on == "slurm":
        raise InputError("--on: expected local or ray, found 'slurm'; an array of --part jobs does the same there")
    with config_errors(config), interruptible(), display() as show:

        def tell(event: "JobEvent") -> None:
            part = f"{event.job} of {workers}"
            if event.kind == "progress":
                show.update(part, event.done, event.total, f"{part}: {event.done} of {event.total} rows", parts=10)
            else:
                show.line(f"{part} {event.kind}{f': {event.problem}' if event.problem else ''}")

        built = build_in_parts(
            read_config(config, overrides),
            network,
            executor_for(on, resources),
            workers=workers,
            shard_bytes=shard_bytes,
            on_event=tell,
        )
    for directory in built:
        _print(cache_info(directory))


@cache.command("import")
def import_(
    logits: Annotated[
        Path,
        typer.Argument(
            help="Logits or log-probabilities of the training samples, (N, K) or (N, views, K): .npy, .npz, "
            ".safetensors, .pt, .csv, .tsv or .parquet; or log_probs, indices, label_log_probs and rest_log_probs. Of "
            "a language model those arrays, or a vLLM server's answers as .jsonl; see docs/tokens.md."
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
    if reads_tokens(config):
        _import_tokens(config, overrides, logits)
        return
    with config_errors(config):
        loaded = read_config(config, overrides)
        with interruptible(), _progress() as on_progress:
            found = import_logits(
                loaded, logits, ids, teacher=teacher, on_progress=on_progress, on_note=partial(say, error=True)
            )
    if found.was_complete:
        say(f"{found.directory}: already imported from these files, nothing to do")
    _print(cache_info(found.directory))


def _import_tokens(config: Path, overrides: Overrides, path: Path) -> None:
    """Make what a language model said elsewhere its cache."""
    from tpkd.importing.tokens import import_tokens

    with config_errors(config):
        loaded = read_tokens_config(config, overrides)
        with interruptible(), _progress() as on_progress:
            directory = import_tokens(loaded, path, on_progress=on_progress, on_note=partial(say, error=True))
    _print(cache_info(directory))


@cache.command()
def merge(
    parts: Annotated[list[Path], typer.Argument(help="All parts of a cache, in any order.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Directory of the cache; default: CACHE where the parts are CACHE.part-I-of-N."),
    ] = None,
) -> None:
    """Join the parts of a cache, checked and without computing anything; an interrupted merge continues.

    Example: tpkd cache merge runs/cache.part-1-of-2 runs/cache.part-2-of-2
    """
    with interruptible(), counted("shards", parts=10) as on_shards:
        directory = merge_parts(parts, out, on_shards=on_shards)
    _print(cache_info(directory))


@cache.command()
def plan(
    config: Annotated[Path, typer.Argument(help="The run that will read the cache.")],
    overrides: Overrides = None,
    network: Network = "teacher",
    rows: Annotated[
        int | None, typer.Option(help="Samples times views; default: those of the configuration.", min=1)
    ] = None,
    workers: Annotated[int, typer.Option(help="Machines or processes that build a part each.", min=1)] = 1,
    shard_bytes: ShardBytes = SHARD_BYTES,
    json: Annotated[bool, typer.Option("--json", help="Print every field as JSON.")] = False,
) -> None:
    """Say what a cache will take on disk, in memory and in time; the network runs on a few batches to measure it.

    Example: tpkd cache plan configs/digits.yaml --rows 100000000 --workers 8
    """
    if reads_tokens(config):
        raise InputError(
            f"{config}: expected a classifier's run; the cache of a language model is built without a plan"
        )
    with extra("train"):
        from tpkd.teacher.planning import forecast
    with config_errors(config):
        found = forecast(read_config(config, overrides), network, rows=rows, workers=workers, shard_bytes=shard_bytes)
    if json:
        say(found.to_json(), end="")
    else:
        _print_forecast(found)


@cache.command()
def verify(
    directory: Annotated[str, typer.Argument(help="A cache: a directory, or an address such as s3://bucket/cache.")],
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
    place = readable_cache(directory)
    if config is None:
        report = verify_from(place)
    elif reads_tokens(config):
        from tpkd.tokens.cache import verify_token_cache

        with config_errors(config):
            report = verify_token_cache(place, read_tokens_config(config, overrides), sample=sample)
    else:
        with config_errors(config):
            report = verify_from(place, read_config(config, overrides), network, sample=sample)
    say(*report.problems)
    again = f"{report.rows_recomputed} computed again" if report.rows_recomputed else "none computed again"
    largest = "" if report.max_difference is None else f", largest difference {report.max_difference:.2g}"
    verdict = "sound" if report.passes else "not sound"
    say(f"{verdict}: {report.rows_written} rows in {report.shards} shards, {again}{largest}")
    if not report.passes:
        raise typer.Exit(1)


@cache.command()
def info(
    directory: Annotated[
        str, typer.Argument(help="A cache, finished or not: a directory, or an address such as s3://bucket/cache.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print every field as JSON.")] = False,
) -> None:
    """Show what a cache contains and how it was computed.

    Example: tpkd cache info runs/digits-cache
    """
    found = cache_info(readable_cache(directory, shards=False))
    if json:
        say(found.to_json(), end="")
    else:
        _print(found)


def _print(found: CacheInfo) -> None:
    recipe = found.recipe
    size = f"{found.bytes / 1e6:.1f} MB in {found.shards} shards"
    if found.full_bytes is not None:
        size = f"{compare_sizes(found.bytes, found.full_bytes)}; {found.shards} shards"
    if found.index_bytes:
        size += f", and an index of {sized(found.index_bytes)}"
    cut = f"{found.samples} samples × {found.views} views"
    if found.part is not None:
        cut = f"{found.part}; {cut} in all"
    rows = {
        "rows": f"{found.rows_written} of {found.rows} ({cut})",
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


def _print_forecast(found: "CacheForecast") -> None:
    columns = [_estimated(estimate) for estimate in found.estimates]
    table = Table(title=f"A cache of {found.estimates[0].rows:,} rows")
    for name in ("", *(estimate.kept for estimate in found.estimates)):
        table.add_column(escape(name), overflow="fold")
    for name in columns[0]:
        table.add_row(name, *(column[name] for column in columns))
    Console().print(table)
    trial, workers = found.trial, found.estimates[0].workers
    speed = f"{trial.rows:,} rows in {trial.seconds:.1f} s, {trial.rows_per_second:,.1f} rows per second"
    whose = "one worker" if workers == 1 else f"{workers} workers"
    say(f"Measured here: {speed}; minutes are for {whose} at this speed.")


def _estimated(estimate: CacheEstimate) -> dict[str, str]:
    index = f"{sized(estimate.index_bytes)} on disk, {sized(estimate.index_memory)} in memory"
    return {
        "bytes per row": f"{estimate.row_bytes:,}",
        "on disk": sized(estimate.bytes + estimate.index_bytes),
        "files": f"{estimate.files:,}, {estimate.shards:,} of them shards of {estimate.shard_rows:,} rows",
        "index": index if estimate.index_bytes else "none: ids are in order",
        "memory of a builder": f"{sized(estimate.build_memory)} beside the network",
        "largest part": f"{estimate.largest_part:,} rows",
        "minutes": "unknown" if estimate.minutes is None else f"{estimate.minutes:,.1f}",
    }


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
