"""`tpkd study certificates`: whether the conditional advantage survives ordinary backpropagation."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from torch import Tensor

from tpkd.config.schema import RunConfig
from tpkd.data.batches import SampleBatch, TrainingBatches
from tpkd.data.slicing import to_device
from tpkd.geometry import (
    PAPER_BETA,
    alignment_bound,
    conditional_distortion_limit,
    conditional_loss,
    joint_cosine_bound,
    joint_distortion_limit,
)
from tpkd.mechanism.bench import Bench, OnProgress, Snapshot, call, choose_states, ends, no_progress, open_bench
from tpkd.mechanism.checks import Checks, Statement, scaling
from tpkd.mechanism.given import GivenState
from tpkd.mechanism.record import CertificateBatch, CertificatesRecord, CertificateState, PairSpectrum
from tpkd.parameter_space import PairCertificate, certify
from tpkd.training.step import take_step

OBJECTIVES = ("compensation-only", "tpkd")
START = "start"
STATEMENTS = {
    "conditional-cosine": Statement("cos(U, R) >= c_K"),
    "joint-cosine": Statement("cos(W, V) >= sqrt(gamma_K)"),
    "conditional-gain": Statement("<J'U, J'R / 2> > 0 where chi_c < kappa_c, to first order in the step"),
    "joint-descent": Statement("<J'W, J'V> > 0 where chi_Phi < kappa_Phi, to first order in the step"),
    "native-gain": Statement("TPKD ends with less conditional loss than compensation only", theorem=False, strict=True),
}
GENERAL = {
    "joint-cosine": Statement("cos(W, V) >= the bound of the general coefficient, where there is one"),
    "conditional-gain": Statement("<J'U, beta J'R> > 0 where chi_c < kappa_c, to first order in the step"),
    "joint-descent": Statement("<J'W, J'V> > 0 where chi_Phi is below the general limit, to first order in the step"),
}
"""What is said instead where the coefficient is not the paper's."""


def study_certificates(
    config: RunConfig,
    directory: str | Path | None = None,
    *,
    states: Sequence[GivenState] = (),
    on_progress: OnProgress = no_progress,
) -> CertificatesRecord:
    """Test the geometry of fixed batches at an early and a late state, and make one training iteration on each.

    Paper: tab:certificate. The network and its vector-Jacobian products run in float32, the geometry in float64. A
    native pair is one usual iteration of compensation-only and one of TPKD, each from the restored model, optimiser,
    scaler, buffers and random state; both ends are evaluated alike, in float32 and evaluation mode.

    TPKD's coefficient is that of its settings; the joint limit is the general one where it is not the paper's.

    Args:
        config: the run, with its section `study`.
        directory: where it is kept, by default what the configuration says.
        states: files of weights to look at in the place of snapshots; without the state of its optimiser, a pair
            starts with a fresh one, and the record says so.
        on_progress: called after every batch.

    Returns:
        Counts and means of each state, and every batch.

    Raises:
        InputError: the run or its snapshots are not as they must be.
    """
    settings = config.study.certificates
    looked_at = choose_states(config, "certificates.states", settings.states, ends(config.snapshots), states)
    bench = open_bench(config, directory, compared=OBJECTIVES, given=bool(states), native=True)
    num_samples, num_classes = len(bench.run.dataset), bench.run.dataset.num_classes
    size = min(settings.batch_size, num_samples)
    count = min(settings.batches, num_samples // size)
    batches = bench.batches(bench.run.dataset, batch_size=size, num_batches=count)
    statements = STATEMENTS if bench.beta == PAPER_BETA else STATEMENTS | GENERAL
    checks = Checks(statements, config.study.tolerance)
    visits = bench.visit(looked_at, batches, on_progress)
    found = tuple(_state(bench, snapshot, batches, samples, checks) for snapshot, samples in visits)
    reason = f"the data have {num_samples} samples"
    scaled = (
        *scaling("batch_size", settings.batch_size, size, reason),
        *scaling("batches", settings.batches, count, reason),
    )
    return CertificatesRecord(
        **bench.head(scaled, checks),
        batch_size=size,
        microbatch=min(settings.microbatch, size),
        native_microbatch=min(config.micro_batch_size or size, size),
        learning_rate=bench.learning_rate,
        rank_tolerance=settings.rank_tolerance,
        spectral_tolerance=settings.spectral_tolerance,
        conditional_limit=conditional_distortion_limit(num_classes),
        joint_limit=joint_distortion_limit(num_classes, beta=bench.beta),
        states=found,
        beta=bench.beta,
    )


def _state(
    bench: Bench,
    snapshot: Snapshot,
    batches: TrainingBatches,
    numbered: Iterable[tuple[int, SampleBatch]],
    checks: Checks,
) -> CertificateState:
    pairs = [_pair(bench, snapshot, batches, number, samples) for number, samples in numbered]
    rows = [row for row, _ in pairs]
    for row in rows:
        _check(bench, row, checks)
    return CertificateState(
        state=snapshot.about,
        conditional_passes=sum(row.conditional is not None and row.conditional.passes for row in rows),
        joint_passes=sum(row.joint is not None and row.joint.passes for row in rows),
        positive_pairs=sum(row.gain > 0 for row in rows),
        gain=sum(row.gain for row in rows) / len(rows),
        skipped_steps=sum(skipped for _, skipped in pairs),
        batches=tuple(rows),
    )


def _pair(
    bench: Bench, snapshot: Snapshot, batches: TrainingBatches, number: int, samples: SampleBatch
) -> tuple[CertificateBatch, int]:
    """The certificate of a batch and one native pair on it; and how many of its two iterations were skipped."""
    settings, teacher = bench.run.config.study.certificates, bench.teacher_logits(samples)
    bench.restore(snapshot)
    certificate = certify(
        bench.run.student,
        to_device(samples.inputs, bench.run.accelerator.device),
        teacher,
        samples.labels,
        microbatch=settings.microbatch,
        forward=call,
        rank_tolerance=settings.rank_tolerance,
        spectral_tolerance=settings.spectral_tolerance,
        beta=bench.beta,
    )
    losses, skipped = {START: _loss(bench, samples, teacher)}, 0
    for objective in OBJECTIVES:
        bench.restore(snapshot)
        outcome = take_step(bench.iterations(objective, batches), number + 1, samples)
        losses[objective] = _loss(bench, samples, teacher)
        skipped += outcome.skipped
    row = CertificateBatch(
        batch=number,
        sample_ids=tuple(samples.sample_ids.tolist()),
        view_ids=tuple(samples.view_ids.tolist()),
        conditional=_spectrum(certificate.conditional),
        joint=_spectrum(certificate.joint),
        conditional_loss=losses,
        gain=losses["compensation-only"] - losses["tpkd"],
    )
    return row, skipped


def _loss(bench: Bench, samples: SampleBatch, teacher_logits: Tensor) -> float:
    return conditional_loss(bench.student_logits(samples.inputs), teacher_logits, samples.labels).mean().item()


def _spectrum(found: PairCertificate | None) -> PairSpectrum | None:
    if found is None:
        return None
    infinite = {name: None for name, value in asdict(found).items() if math.isinf(value)}
    return PairSpectrum(**(asdict(found) | infinite))


def _check(bench: Bench, row: CertificateBatch, checks: Checks) -> None:
    num_classes = bench.run.dataset.num_classes
    bounds = alignment_bound(num_classes), joint_cosine_bound(num_classes, beta=bench.beta)
    pairs = ("conditional-cosine", "conditional-gain", row.conditional), ("joint-cosine", "joint-descent", row.joint)
    for (cosine, first_order, pair), bound in zip(pairs, bounds, strict=True):
        if pair is not None and bound > 0:  # a small coefficient has no joint bound
            checks.add(cosine, pair.cosine - bound)
        if pair is not None and pair.passes:
            checks.add(first_order, pair.inner_product)
    checks.add("native-gain", row.gain)
