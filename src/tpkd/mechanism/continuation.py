"""`tpkd study continuation`: whether the advantage of a step accumulates over successive training iterations."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import torch

from tpkd.config.schema import RunConfig
from tpkd.data.batches import TrainingBatches, load_batches
from tpkd.data.dataset import Dataset
from tpkd.data.order import SampleOrder, choose_views
from tpkd.errors import InputError
from tpkd.mechanism.bench import Bench, OnProgress, Snapshot, choose_states, ends, no_progress, open_bench
from tpkd.mechanism.checks import scaling
from tpkd.mechanism.given import GivenState
from tpkd.mechanism.pool import Rows
from tpkd.mechanism.record import (
    ContinuationCurve,
    ContinuationPoint,
    ContinuationRecord,
    ContinuationRepeat,
    Scaling,
)
from tpkd.models.weights import weights_fingerprint
from tpkd.theory import Diagnosis
from tpkd.training.step import take_step

OBJECTIVES = ("ce", "compensation-only", "tpkd")
OBSERVED_SHARE = 5
"""Of small data at most one in so many samples is observed, and the others are learned from."""


def study_continuation(
    config: RunConfig,
    directory: str | Path | None = None,
    *,
    states: Sequence[GivenState] = (),
    on_progress: OnProgress = no_progress,
) -> ContinuationRecord:
    """Go on from one state with three objectives, on the same sequence of samples, and watch other samples.

    Paper: section 6 and its appendix on the 128-iteration continuation. Every objective takes its directions from its
    own current student; the rate is constant; the observed samples are of the training pool and never learned from.
    TPKD's coefficient is that of its settings.

    Args:
        config: the run, with its section `study`.
        directory: where it is kept, by default what the configuration says.
        states: one file of weights to go on from in the place of a snapshot; without the state of its optimiser, all
            objectives start with a fresh one, and the record says so.
        on_progress: called after every iteration.

    Returns:
        The conditional loss and the label loss of the observed samples along the way, of each objective, and how TPKD
        ends. Repeats divide and order the samples by the seeds that follow. Where the data have fewer samples than the
        iterations take, these are repeated in another order and the record says so.

    Raises:
        InputError: the run or its snapshot are not as they must be.
    """
    settings = config.study.continuation
    chosen = () if settings.state is None else (settings.state,)
    if len(states) > 1:
        names = ", ".join(state.name for state in states)
        raise InputError(f"--state: expected one state, from which a continuation goes on, found {names}")
    (state,) = choose_states(config, "continuation.state", chosen, ends(config.snapshots)[-1:], states)
    bench = open_bench(config, directory, compared=OBJECTIVES, given=bool(states), native=True)
    snapshot = bench.snapshot(state)
    passes = settings.repeats * len(OBJECTIVES) * settings.iterations
    steps = count()
    next(steps)
    first, *others = (
        _repeat(bench, snapshot, config.study.seed + number, lambda: on_progress(next(steps), passes))
        for number in range(settings.repeats)
    )
    ce, compensation, tpkd = (curve.points[-1].conditional_loss for curve in first.curves)
    return ContinuationRecord(
        **bench.head(first.scaled),
        state=snapshot.about,
        iterations=settings.iterations,
        batch_size=config.batch_size,
        learning_rate=bench.learning_rate,
        update_ids=tuple(first.update.ids.tolist()),
        observation_ids=tuple(first.observed.ids.tolist()),
        observation_views=tuple(first.views.tolist()),
        curves=first.curves,
        start=first.curves[-1].points[0].conditional_loss,
        tpkd_end=tpkd,
        tpkd_minus_ce=tpkd - ce,
        tpkd_minus_compensation=tpkd - compensation,
        beta=bench.beta,
        repeats=tuple(ContinuationRepeat(other.seed, other.curves) for other in others),
    )


@dataclass(frozen=True)
class _Repeat:
    """One division of the samples, and where the objectives went on it."""

    seed: int
    update: Dataset
    observed: Dataset
    views: np.ndarray
    scaled: tuple[Scaling, ...]
    curves: tuple[ContinuationCurve, ...]


def _repeat(bench: Bench, snapshot: Snapshot, seed: int, on_step: Callable[[], None]) -> _Repeat:
    """All objectives from the snapshot on, with the samples, views and order of one seed."""
    config = bench.run.config
    settings = config.study.continuation
    update, observed, scaled = _divide(bench, seed)
    views = choose_views(seed, 1, observed.ids, bench.run.preparation.num_views)
    rows = Rows(observed, np.arange(len(observed)), views)
    blocks = rows.blocks(bench.run.preparation, config.evaluation.batch_size)
    teacher_logits = torch.cat([bench.teacher_logits(samples) for samples in blocks])
    batches = bench.batches(update, batch_size=config.batch_size, num_batches=settings.iterations, seed=seed)
    points = {0, settings.iterations} | {point for point in settings.points if point < settings.iterations}
    curves = []
    for objective in OBJECTIVES:
        found, skipped = [], 0
        for step, left_out in _continue(bench, snapshot, objective, batches):
            skipped += left_out
            if step in points:
                found.append(_point(step, rows.diagnose(bench, teacher_logits)))
            if step > 0:
                on_step()
        end = weights_fingerprint(bench.run.student)
        curves.append(ContinuationCurve(objective, end, skipped, tuple(found)))
    return _Repeat(seed, update, observed, views, scaled, tuple(curves))


def _divide(bench: Bench, seed: int) -> tuple[Dataset, Dataset, tuple[Scaling, ...]]:
    """The samples to learn from and, disjoint from them, those to look at."""
    config, dataset = bench.run.config, bench.run.dataset
    settings, available = config.study.continuation, len(dataset)
    updates = settings.iterations * config.batch_size
    if available < 2:
        raise InputError(f"data: expected at least 2 samples to learn from one and look at another, found {available}")
    observed = min(settings.observation, max(available - updates, available // OBSERVED_SHARE, 1))
    learned = min(updates, available - observed)
    positions, _ = SampleOrder(seed, available).positions(0, learned + observed)
    reason = f"the data have {available} samples"
    scaled = (
        *scaling("update samples", updates, learned, f"{reason}; they are repeated"),
        *scaling("observation", settings.observation, observed, reason),
    )
    return dataset.subset(np.sort(positions[:learned])), dataset.subset(np.sort(positions[learned:])), scaled


def _continue(bench: Bench, snapshot: Snapshot, objective: str, batches: TrainingBatches) -> Iterator[tuple[int, bool]]:
    """The iterations of one objective from the snapshot on: the number done, and whether the last one was skipped."""
    bench.restore(snapshot)
    run = bench.iterations(objective, batches)
    yield 0, False
    for step, samples in enumerate(load_batches(batches, workers=bench.run.config.workers), start=1):
        yield step, take_step(run, step, samples).skipped


def _point(iteration: int, state: Diagnosis) -> ContinuationPoint:
    return ContinuationPoint(
        iteration=iteration,
        conditional_loss=state.conditional_loss.mean().item(),
        label_loss=state.label_loss.mean().item(),
        blocked_share=state.blocked.double().mean().item(),
    )
