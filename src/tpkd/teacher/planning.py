"""`tpkd cache plan`: what a cache will take, with the speed of the network as a short trial measures it."""

import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace

from tpkd.config.schema import RunConfig
from tpkd.record import Record
from tpkd.teacher.cache.build import BuildProgress, build_cache
from tpkd.teacher.cache.plan import CacheEstimate, estimate_cache
from tpkd.teacher.cache.rows import CacheRows
from tpkd.teacher.cache.runs import find_runs, run_index
from tpkd.teacher.cache.shards import SHARD_BYTES
from tpkd.teacher.caching import BLOCK_ROWS, CachePlan, plan_cache

TRIAL_SECONDS = 2.0
"""A trial ends after this time, but not before its second block."""
TRIAL_BLOCKS = 32
"""The most that it builds before it begins again."""
TOP_K = 64
"""Classes of the truncated cache that is planned where the configuration names no number."""


@dataclass(frozen=True)
class Trial(Record):
    """How fast a network fills a cache on this machine."""

    rows: int
    seconds: float

    @property
    def rows_per_second(self) -> float:
        """Of one builder."""
        return self.rows / self.seconds


@dataclass(frozen=True)
class CacheForecast(Record):
    """What a cache of a configuration takes, with all logits and with the largest classes alone."""

    trial: Trial
    estimates: tuple[CacheEstimate, ...]


def forecast(
    config: RunConfig,
    network: str = "teacher",
    *,
    rows: int | None = None,
    workers: int = 1,
    shard_bytes: int = SHARD_BYTES,
) -> CacheForecast:
    """Measure the network on a few batches and compute what its cache takes.

    Args:
        config: the run that will read the cache.
        network: as in `plan_cache`.
        rows: samples times views; those of the configuration by default.
        workers: how many build a part each.
        shard_bytes: the most that a shard takes.
    """
    plan = plan_cache(config, network)
    trial = measure(plan)
    views = plan.preparation.num_views
    in_order = run_index([find_runs(plan.rows.sample_ids, plan.rows.view_ids, views)], views) is not None
    top_k = plan.recipe.top_k or min(TOP_K, plan.recipe.num_classes)
    estimates = (
        estimate_cache(
            replace(plan.recipe, top_k=kept),
            len(plan.rows) if rows is None else rows,
            views=views,
            in_order=in_order,
            workers=workers,
            rows_per_second=trial.rows_per_second,
            shard_bytes=shard_bytes,
        )
        for kept in (None, top_k)
    )
    return CacheForecast(trial, tuple(estimates))


class _Enough(Exception):  # noqa: N818  (not an error)
    """The trial has seen enough."""


def measure(plan: CachePlan, seconds: float | None = None) -> Trial:
    """Build the first rows of a cache in a temporary directory, again and again until the time is over.

    The first block of each build is not counted: it starts the machinery.
    """
    size = max(1, min(BLOCK_ROWS, len(plan.rows) // 4))
    count, labels = min(len(plan.rows), TRIAL_BLOCKS * size), plan.rows.labels
    rows = CacheRows(
        plan.rows.sample_ids[:count],
        plan.rows.view_ids[:count],
        plan.rows.inputs,
        None if labels is None else labels[:count],
    )
    trial, end = Trial(0, 0.0), time.perf_counter() + (TRIAL_SECONDS if seconds is None else seconds)
    while not trial.seconds or time.perf_counter() < end:
        trial = _build_once(plan, rows, size, trial, end)
    return trial


def _build_once(plan: CachePlan, rows: CacheRows, size: int, trial: Trial, end: float) -> Trial:
    """The trial with the blocks of another build, which stops at the end of the time."""
    begun: tuple[int, float] | None = None
    found = trial

    def watch(progress: BuildProgress) -> None:
        nonlocal begun, found
        now = time.perf_counter()
        if begun is not None:
            found = Trial(trial.rows + progress.rows_done - begun[0], trial.seconds + now - begun[1])
            if now >= end:
                raise _Enough
        elif progress.rows_done or len(rows) == 1:  # the first report comes before the first block
            begun = progress.rows_done, now

    with tempfile.TemporaryDirectory() as directory, suppress(_Enough):
        build_cache(directory, rows, plan.forward, plan.recipe, block_rows=size, on_progress=watch)
    return found
