"""`tpkd study blocking`: how often ordinary training blocks full imitation, and what is left to learn there."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tpkd.config.schema import RunConfig
from tpkd.data.batches import Preparation, SampleBatch
from tpkd.data.dataset import Dataset
from tpkd.data.order import SampleOrder
from tpkd.data.slicing import to_device
from tpkd.mechanism.bench import Bench, OnProgress, choose_epochs, open_bench
from tpkd.mechanism.checks import Checks, Statement, scaling
from tpkd.mechanism.record import (
    BlockedSet,
    BlockingRecord,
    BlockingSplit,
    BlockingState,
    BlockingView,
    Scaling,
    SnapshotState,
)
from tpkd.teacher.frozen import FrozenModel, OnlineModel, given_test_logits
from tpkd.teacher.network import build_teacher, class_map, teacher_preparation
from tpkd.teacher.recipes import cache_rows
from tpkd.theory import Diagnosis, diagnose

STATEMENTS = {
    "cost-bounds-loss": Statement("D_inf(q || r) >= KL(q || r)"),
    "confidence-grows": Statement("a_min >= rho"),
    "blocked-is-confident": Statement("rho >= tau where p_j <= t_j for every incorrect class"),
    "positive-when-blocked": Statement("KL(q || r) > 0 where blocked", theorem=False, strict=True),
}


@dataclass(frozen=True)
class _Pool:
    """Fixed samples of one split in all their views, and what the teacher says about them."""

    dataset: Dataset
    labels: Tensor
    view_ids: Tensor
    teacher_logits: Tensor


def study_blocking(
    config: RunConfig, directory: str | Path | None = None, *, on_progress: OnProgress | None = None
) -> BlockingRecord:
    """Look at every state of a run on fixed samples, each in all its views.

    Paper: tab:states. The blocked share, and within the blocked set the mean conditional loss and the mean transfer
    cost D_inf(q || r), from log probabilities. The paper does not say whether its 2,000 images are training or test
    images: both are looked at, with the teacher's answers in one precision. A cache of training samples in float16 has
    the answers to test samples rounded as it would.

    Args:
        config: the run, with its section `study`.
        directory: where it is kept, by default what the configuration says.
        on_progress: called after every state of every split.

    Returns:
        One entry a split and state. An empty blocked set has 0 pairs and no means.

    Raises:
        InputError: the run, its snapshots or its teacher are not as they must be.
    """
    settings = config.study.blocking
    epochs = choose_epochs(config, "blocking.states", settings.states, config.snapshots)
    bench = open_bench(config, directory)
    checks = Checks(STATEMENTS, config.study.tolerance)
    splits: list[BlockingSplit] = []
    scalings: list[Scaling] = []
    missing: dict[str, str] = {}
    for split in settings.splits:
        if split == "test" and (reason := _no_answers_to_test(bench)):
            missing[split] = reason
            continue
        pool, scaled = _pool(bench, split)
        scalings += scaled
        states = []
        for epoch in epochs:
            states.append(_state(bench, bench.snapshot(epoch).about, pool, checks))
            if on_progress is not None:
                on_progress(len(splits) * len(epochs) + len(states), len(settings.splits) * len(epochs))
        ids = tuple(pool.dataset.ids.tolist())
        num_views = bench.run.preparation.num_views
        splits.append(BlockingSplit(split, pool.dataset.fingerprint, num_views, ids, tuple(states)))
    return BlockingRecord(
        source=bench.source,
        study_seed=config.study.seed,
        tolerance=config.study.tolerance,
        scalings=tuple(scalings),
        checks=checks.records(),
        splits=tuple(splits),
        missing=missing,
    )


def _pool(bench: Bench, split: str) -> tuple[_Pool, tuple[Scaling, ...]]:
    config, run = bench.run.config, bench.run
    whole = run.dataset if split == "train" else run.test_dataset
    asked = config.study.blocking.samples
    count = min(asked, len(whole))
    positions, _ = SampleOrder(config.study.seed, len(whole)).positions(0, count)
    chosen = np.sort(positions)
    dataset = whole.subset(chosen)
    scaled = scaling(f"{split}.samples", asked, count, f"the split has {len(whole)} samples")
    assert config.teacher is not None
    if split == "test" and config.teacher.model is None:
        answers = given_test_logits(config, whole)[chosen].to(bench.teacher.dtype).double()
        return _Pool(dataset, torch.from_numpy(dataset.labels), torch.zeros(count, dtype=torch.long), answers), scaled
    return _ask_teacher(bench, split, dataset), scaled


def _ask_teacher(bench: Bench, split: str, dataset: Dataset) -> _Pool:
    run = bench.run
    teacher, preparation = _teacher(bench, split)
    answers, views = [], []
    for block in _blocks(bench, dataset, preparation):
        inputs = to_device(block.inputs, run.accelerator.device)
        logits = teacher.answer(inputs, block.sample_ids, block.view_ids).logits
        answers.append(logits.to(bench.teacher.dtype).double().cpu())  # of a cache they are that already
        views.append(block.view_ids)
    labels = torch.from_numpy(np.repeat(dataset.labels, preparation.num_views))
    return _Pool(dataset, labels, torch.cat(views), torch.cat(answers))


def _no_answers_to_test(bench: Bench) -> str | None:
    """Why nobody says what the teacher thinks of test samples, if so."""
    teacher, num_views = bench.run.config.teacher, bench.run.preparation.num_views
    assert teacher is not None
    if teacher.model is not None:
        return None
    if teacher.test_logits is None:
        return "neither teacher.model nor teacher.test_logits is given, and its cache holds training samples only"
    if num_views > 1:
        return f"teacher.model is not given, and teacher.test_logits answers one view of {num_views}"
    return None


def _teacher(bench: Bench, split: str) -> tuple[FrozenModel, Preparation]:
    """Whoever answers for a split, and how he sees it: a cache holds the training samples only."""
    config, run = bench.run.config, bench.run
    if split == "train":
        return bench.teacher, run.preparation
    model = build_teacher(config, run.dataset).to(run.accelerator.device)
    mapping = class_map(config, run.dataset)
    return OnlineModel(model, (), mapping), teacher_preparation(config, run.dataset)


def _blocks(bench: Bench, dataset: Dataset, preparation: Preparation) -> Iterator[SampleBatch]:
    """Every view of every sample, all views of one sample after the other."""
    rows = cache_rows(dataset, preparation)
    size = bench.run.config.evaluation.batch_size
    for start in range(0, len(rows), size):
        stop = min(start + size, len(rows))
        ids, views = (torch.from_numpy(keys[start:stop]) for keys in (rows.sample_ids, rows.view_ids))
        yield SampleBatch(rows.inputs(start, stop), torch.zeros_like(ids), ids, views, torch.zeros_like(ids))


def _state(bench: Bench, about: SnapshotState, pool: _Pool, checks: Checks) -> BlockingState:
    blocks = _blocks(bench, pool.dataset, bench.run.preparation)
    student_logits = torch.cat([bench.student_logits(block.inputs) for block in blocks])
    found = diagnose(student_logits, pool.teacher_logits, pool.labels)
    blocked = found.blocked
    checks.add("cost-bounds-loss", found.transfer_cost - found.conditional_loss)
    checks.add("confidence-grows", found.min_confidence - found.confidence)
    checks.add("blocked-is-confident", (found.confidence - found.teacher_confidence)[blocked])
    checks.add("positive-when-blocked", found.conditional_loss[blocked])
    return BlockingState(
        **asdict(_blocked_set(found, torch.ones_like(blocked))),
        state=about,
        positive=int((found.conditional_loss[blocked] > bench.run.config.study.tolerance).sum()),
        views=tuple(
            BlockingView(**asdict(_blocked_set(found, pool.view_ids == view)), view=view)
            for view in range(bench.run.preparation.num_views)
        ),
    )


def _blocked_set(found: Diagnosis, chosen: Tensor) -> BlockedSet:
    blocked = found.blocked & chosen
    pairs, count = int(chosen.sum()), int(blocked.sum())
    return BlockedSet(
        pairs=pairs,
        blocked=count,
        blocked_share=count / pairs,
        conditional_loss=found.conditional_loss[blocked].mean().item() if count else None,
        transfer_cost=found.transfer_cost[blocked].mean().item() if count else None,
    )
