"""A cache built by several workers, on this machine or on a cluster: each builds a part, and the parts are merged."""

import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tpkd.config.loading import ConfigError, expand_data
from tpkd.config.schema import RunConfig
from tpkd.errors import InputError
from tpkd.executors.jobs import JobEvent, MakeExecutor, OnProgress, run_jobs
from tpkd.executors.status import announce
from tpkd.lock import wait_until_free
from tpkd.teacher import caching
from tpkd.teacher.cache.build import BuildProgress
from tpkd.teacher.cache.merge import OnShards, merge_parts
from tpkd.teacher.cache.parts import Part
from tpkd.teacher.cache.remote import refuse_writing
from tpkd.teacher.cache.shards import SHARD_BYTES
from tpkd.teacher.several import keyed_as

PartJob = tuple[RunConfig, str, Part, int]


def build_in_parts(config: RunConfig, network: str, make: MakeExecutor, **options: Any) -> tuple[Path, ...]:
    """`build_one_in_parts` for the network, or for every teacher one after the other; returns their directories.

    Args:
        config: the run that will read the caches.
        network: as in `caching.plan_cache`.
        make: as in `build_one_in_parts`, as the options are.
        options: the others.
    """
    built = []
    for key, alone in caching.to_build(config, network):
        with keyed_as(key):
            built.append(build_one_in_parts(alone, network, make, **options))
    return tuple(built)


def build_one_in_parts(
    config: RunConfig,
    network: str,
    make: MakeExecutor,
    *,
    workers: int,
    shard_bytes: int = SHARD_BYTES,
    on_event: Callable[[JobEvent], None] = lambda event: None,
    on_shards: OnShards | None = None,
) -> Path:
    """Build a cache with several workers, each of which loads the network once; returns its directory.

    The result has the same bytes as that of one builder. A part whose worker fails is built again by the same call.

    Args:
        config: the run that will read the cache.
        network: as in `caching.plan_cache`.
        make: from what a worker does, and a directory for its status files, to what runs it.
        workers: number of parts.
        shard_bytes: the most that a file of the cache takes.
        on_event: told what the workers do.
        on_shards: told how many shards are merged.

    Raises:
        InputError: a part could not be built; the first problem is named.
    """
    section = config.teacher if network == "teacher" else config.initial
    if section is None or section.cache is None:
        raise ConfigError(f"{network}.cache: missing, and the cache needs a directory")
    refuse_writing(f"{network}.cache", section.cache)
    target = Path(expand_data(section.cache))
    parts = [Part(number, workers) for number in range(1, workers + 1)]
    jobs = {f"part-{part.number}": (config, network, part, shard_bytes) for part in parts}
    status = target.with_name(f"{target.name}.workers")
    problems: list[str] = []

    def note(event: JobEvent) -> None:
        if event.kind == "failed":
            problems.append(f"{event.job}: {event.problem}")
        on_event(event)

    executor = make(build_part, status)
    announce(status, jobs, where=socket.gethostname())
    run_jobs(executor, jobs, note)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise InputError(f"{target}: {problems[0]}{more}; the same command builds what is missing")
    places = [part.place(target) for part in parts]
    merge_parts(places, target, on_shards=on_shards)
    for place in (*places, status):  # their shards are those of the cache now
        shutil.rmtree(place)
    return target


def build_part(job: PartJob, on_progress: OnProgress) -> None:
    """What a worker does."""
    config, network, part, shard_bytes = job
    section = config.teacher if network == "teacher" else config.initial
    assert section is not None
    wait_until_free(part.place(Path(expand_data(str(section.cache)))))

    def tell(progress: BuildProgress) -> None:
        on_progress(progress.rows_done, progress.rows_total)

    caching.build(config, network, part=part, shard_bytes=shard_bytes, on_progress=tell)
