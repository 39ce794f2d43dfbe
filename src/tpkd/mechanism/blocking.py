"""`tpkd study blocking`: how often ordinary training blocks full imitation, and what is left to learn there."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tpkd.config.schema import RunConfig
from tpkd.data.batches import Preparation
from tpkd.data.order import SampleOrder
from tpkd.data.slicing import to_device
from tpkd.mechanism.bench import Bench, OnProgress, choose_states, no_progress, open_bench
from tpkd.mechanism.checks import Checks, Statement, scaling
from tpkd.mechanism.given import GivenState
from tpkd.mechanism.pool import Rows
from tpkd.mechanism.record import (
    BlockedSet,
    BlockingRecord,
    BlockingSplit,
    BlockingState,
    BlockingView,
    Scaling,
    SnapshotState,
)
from tpkd.teacher.network import build_teacher, teacher_preparation
from tpkd.teacher.opening import given_test_logits
from tpkd.teacher.teacher import Teacher
from tpkd.theory import Diagnosis

STATEMENTS = {
    "cost-bounds-loss": Statement("D_inf(q || r) >= KL(q || r)"),
    "confidence-grows": Statement("a_min >= rho"),
    "blocked-is-confident": Statement("rho >= tau where p_j <= t_j for every incorrect class"),
    "positive-when-blocked": Statement("KL(q || r) > 0 where blocked", theorem=False, strict=True),
}


@dataclass(frozen=True)
class _Pool:
    """Fixed samples of one split in all their views, and what the teacher says about them."""

    rows: Rows
    teacher_logits: Tensor


def study_blocking(
    config: RunConfig,
    directory: str | Path | None = None,
    *,
    states: Sequence[GivenState] = (),
    on_progress: OnProgress = no_progress,
) -> BlockingRecord:
    """Look at every state of a run on fixed samples, each in all its views.

    Paper: tab:states. The blocked share, and within the blocked set the mean conditional loss and the mean transfer
    cost D_inf(q || r), from log probabilities. The paper does not say whether its 2,000 images are training or test
    images: both are looked at, with the teacher's answers in one precision. A cache of training samples in float16 has
    the answers to test samples rounded as it would.

    Args:
        config: the run, with its section `study`.
        directory: where it is kept, by default what the configuration says.
        states: files of weights to look at in the place of snapshots.
        on_progress: called after every state of every split.

    Returns:
        One entry a split and state. An empty blocked set has 0 pairs and no means.

    Raises:
        InputError: the run, its snapshots or its teacher are not as they must be.
    """
    settings = config.study.blocking
    looked_at = choose_states(config, "blocking.states", settings.states, config.snapshots, states)
    bench = open_bench(config, directory, given=bool(states))
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
        found = []
        for state in looked_at:
            found.append(_state(bench, bench.snapshot(state).about, pool, checks))
            on_progress(len(splits) * len(looked_at) + len(found), len(settings.splits) * len(looked_at))
        dataset, num_views = pool.rows.dataset, bench.run.preparation.num_views
        splits.append(BlockingSplit(split, dataset.fingerprint, num_views, tuple(dataset.ids.tolist()), tuple(found)))
    return BlockingRecord(**bench.head(scalings, checks), splits=tuple(splits), missing=missing)


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
    rows = Rows.in_all_views(dataset, run.preparation.num_views)
    if split == "test" and config.teacher.model is None:
        return _Pool(rows, given_test_logits(config, whole)[chosen].to(bench.teacher.dtype).double()), scaled
    teacher, preparation = _teacher(bench, split)
    answers = []
    for block in rows.blocks(preparation, config.evaluation.batch_size):
        inputs = to_device(block.inputs, run.accelerator.device)
        logits = teacher.answer(inputs, block.sample_ids, block.view_ids).all_logits("tpkd study blocking")
        answers.append(logits.to(bench.teacher.dtype).double().cpu())  # cached answers already have this dtype
    return _Pool(rows, torch.cat(answers)), scaled


def _no_answers_to_test(bench: Bench) -> str | None:
    """Why the teacher cannot answer for test samples; None if it can."""
    teacher, num_views = bench.run.config.teacher, bench.run.preparation.num_views
    assert teacher is not None
    if teacher.model is not None:
        return None
    if teacher.test_logits is None:
        return "neither teacher.model nor teacher.test_logits is given, and its cache holds training samples only"
    if num_views > 1:
        return f"teacher.model is not given, and teacher.test_logits answers one view of {num_views}"
    return None


def _teacher(bench: Bench, split: str) -> tuple[Teacher, Preparation]:
    """Teacher and preprocessing for a split: a cache holds the training samples only."""
    config, run = bench.run.config, bench.run
    if split == "train":
        return bench.teacher, run.preparation
    teacher = build_teacher(config, run.dataset).to(run.accelerator.device)
    return teacher, teacher_preparation(config, run.dataset)


def _state(bench: Bench, about: SnapshotState, pool: _Pool, checks: Checks) -> BlockingState:
    found = pool.rows.diagnose(bench, pool.teacher_logits)
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
            BlockingView(**asdict(_blocked_set(found, torch.from_numpy(pool.rows.view_ids == view))), view=view)
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
