"""`tpkd study continuation`: whether the advantage of a step accumulates over successive training iterations."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tpkd.config.schema import RunConfig
from tpkd.data.batches import SampleBatch, TrainingBatches, load_batches
from tpkd.data.dataset import Dataset
from tpkd.data.order import SampleOrder, choose_views
from tpkd.errors import InputError
from tpkd.mechanism.bench import Bench, OnProgress, Snapshot, choose_epochs, ends, open_bench
from tpkd.mechanism.checks import scaling
from tpkd.mechanism.coefficient import study_beta
from tpkd.mechanism.record import ContinuationCurve, ContinuationPoint, ContinuationRecord, Scaling
from tpkd.models.weights import weights_fingerprint
from tpkd.theory import diagnose
from tpkd.training.step import take_step

OBJECTIVES = ("ce", "compensation-only", "tpkd")
OBSERVED_SHARE = 5
"""Of small data at most one in so many samples is observed, and the others are learned from."""


@dataclass(frozen=True)
class _Observation:
    """Samples that are only looked at, each in one fixed view, and what the teacher says about them."""

    dataset: Dataset
    view_ids: np.ndarray
    teacher_logits: Tensor


def study_continuation(
    config: RunConfig, directory: str | Path | None = None, *, on_progress: OnProgress | None = None
) -> ContinuationRecord:
    """Go on from one state with three objectives, on the same sequence of samples, and watch other samples.

    Paper: section 6 and its appendix on the 128-iteration continuation. Every objective takes its directions from its
    own current student; the rate is constant; the observed samples are of the training pool and never learned from.
    TPKD's coefficient is that of its settings.

    Args:
        config: the run, with its section `study`.
        directory: where it is kept, by default what the configuration says.
        on_progress: called after every iteration.

    Returns:
        The conditional loss of the observed samples along the way, of each objective, and how TPKD ends. Where the data
        have fewer samples than the iterations take, these are repeated in another order and the record says so.

    Raises:
        InputError: the run or its snapshot are not as they must be.
    """
    settings = config.study.continuation
    chosen = () if settings.state is None else (settings.state,)
    (epoch,) = choose_epochs(config, "continuation.state", chosen, ends(config.snapshots)[-1:])
    beta = study_beta(config, OBJECTIVES)
    bench = open_bench(config, directory)
    update, observed, scaled = _divide(bench)
    observation = _observe_teacher(bench, observed)
    batches = bench.batches(update, batch_size=config.batch_size, num_batches=settings.iterations)
    snapshot = bench.snapshot(epoch)
    points = {0, settings.iterations} | {point for point in settings.points if point < settings.iterations}
    curves = []
    for position, objective in enumerate(OBJECTIVES):
        steps = _continue(bench, snapshot, objective, batches, beta)
        curves.append(_curve(bench, objective, steps, points, observation, position, on_progress))
    ce, compensation, tpkd = (curve.points[-1].conditional_loss for curve in curves)
    return ContinuationRecord(
        source=bench.source,
        study_seed=config.study.seed,
        tolerance=config.study.tolerance,
        scalings=scaled,
        checks=(),
        state=snapshot.about,
        iterations=settings.iterations,
        batch_size=config.batch_size,
        learning_rate=bench.learning_rate,
        update_ids=tuple(update.ids.tolist()),
        observation_ids=tuple(observed.ids.tolist()),
        observation_views=tuple(observation.view_ids.tolist()),
        curves=tuple(curves),
        start=curves[-1].points[0].conditional_loss,
        tpkd_end=tpkd,
        tpkd_minus_ce=tpkd - ce,
        tpkd_minus_compensation=tpkd - compensation,
        beta=beta,
    )


def _divide(bench: Bench) -> tuple[Dataset, Dataset, tuple[Scaling, ...]]:
    """The samples to learn from and, disjoint from them, those to look at."""
    config, dataset = bench.run.config, bench.run.dataset
    settings, available = config.study.continuation, len(dataset)
    updates = settings.iterations * config.batch_size
    if available < 2:
        raise InputError(f"data: expected at least 2 samples to learn from one and look at another, found {available}")
    observed = min(settings.observation, max(available - updates, available // OBSERVED_SHARE, 1))
    learned = min(updates, available - observed)
    positions, _ = SampleOrder(config.study.seed, available).positions(0, learned + observed)
    reason = f"the data have {available} samples"
    scaled = (
        *scaling("update samples", updates, learned, f"{reason}; they are repeated"),
        *scaling("observation", settings.observation, observed, reason),
    )
    return dataset.subset(np.sort(positions[:learned])), dataset.subset(np.sort(positions[learned:])), scaled


def _observe_teacher(bench: Bench, observed: Dataset) -> _Observation:
    seed, num_views = bench.run.config.study.seed, bench.run.preparation.num_views
    view_ids = choose_views(seed, 1, observed.ids, num_views)
    logits = [bench.teacher_logits(samples) for samples in _blocks(bench, observed, view_ids)]
    return _Observation(observed, view_ids, torch.cat(logits))


def _blocks(bench: Bench, dataset: Dataset, view_ids: np.ndarray) -> Iterator[SampleBatch]:
    size = bench.run.config.evaluation.batch_size
    for start in range(0, len(dataset), size):
        positions = np.arange(start, min(start + size, len(dataset)))
        views = view_ids[positions]
        columns = (dataset.labels[positions], dataset.ids[positions], views, np.ones_like(positions))
        inputs = bench.run.preparation.inputs(dataset, positions, views)
        yield SampleBatch(inputs, *map(torch.from_numpy, columns))


def _continue(
    bench: Bench, snapshot: Snapshot, objective: str, batches: TrainingBatches, beta: float
) -> Iterator[tuple[int, bool]]:
    """The iterations of one objective from the snapshot on: how many are done, and whether the last was left out."""
    bench.restore(snapshot)
    run = bench.iterations(objective, batches, beta=beta)
    yield 0, False
    for step, samples in enumerate(load_batches(batches, workers=bench.run.config.workers), start=1):
        yield step, take_step(run, step, samples).skipped


def _curve(
    bench: Bench,
    objective: str,
    steps: Iterator[tuple[int, bool]],
    points: set[int],
    observation: _Observation,
    position: int,
    on_progress: OnProgress | None,
) -> ContinuationCurve:
    found, skipped = [], 0
    iterations = max(points)
    for step, left_out in steps:
        skipped += left_out
        if step in points:
            found.append(_look(bench, step, observation))
        if on_progress is not None:
            on_progress(position * iterations + step, len(OBJECTIVES) * iterations)
    return ContinuationCurve(objective, weights_fingerprint(bench.run.student), skipped, tuple(found))


def _look(bench: Bench, iteration: int, observation: _Observation) -> ContinuationPoint:
    blocks = _blocks(bench, observation.dataset, observation.view_ids)
    logits = torch.cat([bench.student_logits(samples.inputs) for samples in blocks])
    state = diagnose(logits, observation.teacher_logits, torch.from_numpy(observation.dataset.labels))
    return ContinuationPoint(
        iteration=iteration,
        conditional_loss=state.conditional_loss.mean().item(),
        label_loss=state.label_loss.mean().item(),
        blocked_share=state.blocked.double().mean().item(),
    )
