"""`tpkd study exact-head`: what steps of the classifier alone learn and keep, on frozen features in float64."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tpkd.config.loading import ConfigError
from tpkd.config.schema import RunConfig
from tpkd.data.batches import SampleBatch, TrainingBatches, load_batches
from tpkd.data.slicing import to_device
from tpkd.errors import InputError
from tpkd.geometry import (
    PAPER_BETA,
    POTENTIAL_LABEL_WEIGHT,
    coefficient_constant,
    conditional_loss,
    general_step_limit,
    label_loss,
    margins,
    named_direction,
    retention_bound,
)
from tpkd.mechanism.bench import Bench, OnProgress, Snapshot, choose_states, ends, no_progress, open_bench
from tpkd.mechanism.checks import Checks, Statement, scaling
from tpkd.mechanism.given import GivenState
from tpkd.mechanism.record import ExactHeadBatch, ExactHeadRecord, ExactHeadState
from tpkd.parameter_space import HeadFactorization, absorb_bias, factorize_features
from tpkd.parameter_space.vjp import as_found
from tpkd.theory import (
    descent_certificate,
    general_descent_certificate,
    joint_alignment,
    joint_potential,
    retention,
)

DIRECTIONS = ("ce", "compensation-only", "tpkd-no-projection", "tpkd", "full-kl")
START = "start"
STATEMENTS = {
    "margins": Statement("every margin after a TPKD step is at least the CE step's"),
    "compensation": Statement("compensation only ends with the conditional loss of CE"),
    "retention": Statement("u'd / |u|^2 >= gamma_K"),
    "cosine": Statement("cos(g_Phi, v) >= sqrt(gamma_K)"),
    "alignment": Statement("R_h = g_Phi'v - |v|^2 - gamma_K |g_Phi|^2 / 4 >= 0"),
    "descent": Statement("Phi falls by at least eta gamma_K |g_Phi|^2 / 4 + eta (1 - 5 eta / 4) |v|^2"),
    "gain": Statement("TPKD ends with less conditional loss than CE", theorem=False, strict=True),
    "unprojected": Statement("an unprojected step loses a margin of the CE step", theorem=False, strict=True),
}
GENERAL = {
    "alignment": Statement("g_Phi'v >= c_{w,beta} (|h|^2 + |u|^2) with w = 4"),
    "descent": Statement(
        "Phi falls by at least (eta c_{w,beta} / 2)(|h|^2 + |u|^2) with w = 4, for steps up to its limit"
    ),
}
"""What the paper proves where the coefficient is not 1/2; of the cosine it claims nothing there."""


class _NotExecutableError(ValueError):
    """No head moves every output of a batch as prescribed, to the tolerance of the study."""


@dataclass(frozen=True)
class _Start:
    """A batch before any step: its features with the bias column, the head, and a solver for both."""

    samples: SampleBatch
    features: Tensor
    head: Tensor
    solver: HeadFactorization
    logits: Tensor
    teacher_logits: Tensor

    @property
    def labels(self) -> Tensor:
        return self.samples.labels


@dataclass(frozen=True)
class _Outcome:
    """A batch after a step of every direction: its row of the record, its logits, and how far each statement holds."""

    row: ExactHeadBatch
    endpoints: dict[str, Tensor]
    slacks: dict[str, Tensor]
    """Left side minus right side, by statement; without those that say nothing about this coefficient and step."""


def study_exact_head(
    config: RunConfig,
    directory: str | Path | None = None,
    *,
    states: Sequence[GivenState] = (),
    on_progress: OnProgress = no_progress,
) -> ExactHeadRecord:
    """Move the classifier of an early and a late state so that every output makes exactly its prescribed step.

    Paper: tab:exact. Features are frozen, the bias is a column of them, and dA = -eta X^+ V with an SVD in float64 and
    no ridge; the rows of V are not divided by the size of the batch. From the same start a step of each of five
    directions; the first batch of each state is done twice. TPKD's coefficient is that of its settings; where it is not
    the paper's, the bounds are those of appendix C.5.

    Args:
        config: the run, with its section `study`.
        directory: where it is kept, by default what the configuration says.
        states: files of weights to look at in the place of snapshots.
        on_progress: called after every batch.

    Returns:
        Means, minima and counts of each state, and every batch. Batches are smaller than asked for where features are
        too narrow or too alike for full row rank; the record says so.

    Raises:
        InputError: the run or its snapshots are not as they must be, or no batch of two rows has full row rank.
    """
    settings = config.study.exact_head
    looked_at = choose_states(config, "exact_head.states", settings.states, ends(config.snapshots), states)
    bench = open_bench(config, directory, compared=DIRECTIONS, given=bool(states))
    if not bench.run.student.has_linear_head:
        raise ConfigError("student.model: an exact head step needs one linear head on the features")
    available, width = len(bench.run.dataset), bench.run.student.feature_size + 1
    size = min(settings.batch_size, available, width)
    reason = f"the data have {available} samples, the features {width} columns"
    while size > 1:
        count = min(settings.batches, available // size)
        batches = bench.batches(bench.run.dataset, batch_size=size, num_batches=count)
        checks = Checks(_statements(bench.beta), config.study.tolerance)
        try:
            visits = bench.visit(looked_at, batches, on_progress)
            found = tuple(_state(bench, snapshot, batches, samples, checks) for snapshot, samples in visits)
        except _NotExecutableError as error:
            size, reason = size // 2, f"{size} rows: {error}"
            continue
        scaled = (
            *scaling("batch_size", settings.batch_size, size, reason),
            *scaling("batches", settings.batches, count, f"the data have {available} samples"),
        )
        gamma = retention_bound(bench.run.dataset.num_classes)
        return ExactHeadRecord(
            **bench.head(scaled, checks),
            step_size=settings.step_size,
            batch_size=size,
            directions=DIRECTIONS,
            retention_bound=gamma,
            cosine_bound=math.sqrt(gamma) if bench.beta == PAPER_BETA else None,
            candidate_steps=len(DIRECTIONS) * sum(len(state.batches) for state in found),
            states=found,
            beta=bench.beta,
        )
    raise InputError(f"study.exact_head: expected features of full row rank, found none: {reason}")


def _statements(beta: float) -> dict[str, Statement]:
    if beta == PAPER_BETA:
        return STATEMENTS
    return {name: statement for name, statement in (STATEMENTS | GENERAL).items() if name != "cosine"}


def _start(bench: Bench, samples: SampleBatch) -> _Start:
    student = bench.run.student
    inputs = to_device(samples.inputs, bench.run.accelerator.device)
    with as_found(student), torch.no_grad():
        features = absorb_bias(student.outputs(inputs).features.cpu())
    linear = student.classifier
    bias = torch.zeros(student.num_classes) if linear.bias is None else linear.bias.detach().cpu()
    head = torch.cat([linear.weight.detach().cpu(), bias[:, None]], dim=1).T.double()
    try:
        solver = factorize_features(features)
    except ValueError as error:
        raise _NotExecutableError(str(error)) from error
    X = features.double()
    return _Start(samples, X, head, solver, X @ head, bench.teacher_logits(samples))


def _endpoints(bench: Bench, start: _Start) -> tuple[dict[str, Tensor], float]:
    """The logits after a head step of each direction, and their largest distance from where they should be."""
    study = bench.run.config.study
    z, errors, step_size = start.logits, [0.0], study.exact_head.step_size
    endpoints = {START: z}
    for name in DIRECTIONS:
        direction = named_direction(name, z, start.teacher_logits, start.labels, beta=bench.beta)
        endpoints[name] = start.features @ (start.head + start.solver.update(direction, step_size))
        errors.append((endpoints[name] - (z - step_size * direction)).abs().max().item())
    if not max(errors) <= study.tolerance:
        raise _NotExecutableError(f"the largest execution error is {max(errors):g}")
    return endpoints, max(errors)


def _certain_descent(start: _Start, step_size: float, beta: float) -> Tensor | None:
    """By how much the potential is certain to fall in a TPKD step; None where no statement covers the step."""
    cases = start.logits, start.teacher_logits, start.labels
    if beta == PAPER_BETA:
        return descent_certificate(*cases, step_size).certain
    num_classes, weight = start.logits.shape[-1], POTENTIAL_LABEL_WEIGHT
    if coefficient_constant(weight, beta, num_classes) <= 0 or step_size > general_step_limit(
        weight, beta, num_classes
    ):
        return None
    return general_descent_certificate(*cases, step_size, label_weight=weight, beta=beta).certain


def _step(bench: Bench, number: int, samples: SampleBatch) -> _Outcome:
    study, beta = bench.run.config.study, bench.beta
    start = _start(bench, samples)
    z, zt, y = start.logits, start.teacher_logits, start.labels
    endpoints, error = _endpoints(bench, start)
    conditional = {name: conditional_loss(logits, zt, y) for name, logits in endpoints.items()}
    potential = {name: joint_potential(logits, zt, y) for name, logits in endpoints.items()}
    reference, gamma = margins(endpoints["ce"], y), retention_bound(z.shape[-1])
    kept_margins = {name: margins(endpoints[name], y) - reference for name in DIRECTIONS}
    lost = {name: (~(slack >= -study.tolerance)).any(-1) for name, slack in kept_margins.items()}
    kept, aligned = retention(z, zt, y).descent_share, joint_alignment(z, zt, y, beta=beta)
    gains = conditional["ce"] - conditional["tpkd"]
    slacks = {
        "margins": kept_margins["tpkd"],
        "compensation": -(conditional["compensation-only"] - conditional["ce"]).abs(),
        "retention": kept - gamma,
        "alignment": aligned.inner_product - aligned.lower_bound,
        "gain": gains,
        "unprojected": -kept_margins["tpkd-no-projection"].amin(-1),
    }
    if beta == PAPER_BETA:
        slacks["cosine"] = aligned.cosine - math.sqrt(gamma)
    if (certain := _certain_descent(start, study.exact_head.step_size, beta)) is not None:
        slacks["descent"] = potential[START] - potential["tpkd"] - certain
    row = ExactHeadBatch(
        batch=number,
        sample_ids=tuple(samples.sample_ids.tolist()),
        view_ids=tuple(samples.view_ids.tolist()),
        condition_number=torch.linalg.cond(start.features).item(),
        conditional_loss=_means(conditional),
        label_loss=_means({name: label_loss(logits, y) for name, logits in endpoints.items()}),
        potential=_means(potential),
        gain=gains.mean().item(),
        positive_examples=int((conditional["ce"] > conditional["tpkd"]).sum()),
        lost_examples={name: int(examples.sum()) for name, examples in lost.items()},
        least_retention=kept.min().item(),
        least_cosine=aligned.cosine.min().item(),
        execution_error=error,
    )
    return _Outcome(row, endpoints, slacks)


def _means(values: dict[str, Tensor]) -> dict[str, float]:
    return {name: value.mean().item() for name, value in values.items()}


def _state(
    bench: Bench,
    snapshot: Snapshot,
    batches: TrainingBatches,
    numbered: Iterable[tuple[int, SampleBatch]],
    checks: Checks,
) -> ExactHeadState:
    outcomes = [_step(bench, number, samples) for number, samples in numbered]
    for name, slack in (item for outcome in outcomes for item in outcome.slacks.items()):
        checks.add(name, slack)
    rows = [outcome.row for outcome in outcomes]

    def change(losses: list[dict[str, float]]) -> float:
        return sum(loss["tpkd"] - loss[START] for loss in losses) / len(losses)

    def least(statement: str) -> float:
        return min(outcome.slacks[statement].min().item() for outcome in outcomes)

    return ExactHeadState(
        state=snapshot.about,
        examples=len(rows) * batches.batch_size,
        gain=sum(row.gain for row in rows) / len(rows),
        conditional_change=change([row.conditional_loss for row in rows]),
        potential_change=change([row.potential for row in rows]),
        least_retention=min(row.least_retention for row in rows),
        least_cosine=min(row.least_cosine for row in rows),
        positive_batches=sum(row.gain > 0 for row in rows),
        positive_examples=sum(row.positive_examples for row in rows),
        lost_examples={name: sum(row.lost_examples[name] for row in rows) for name in DIRECTIONS},
        compensation_difference=-least("compensation"),
        least_alignment_residual=least("alignment"),
        least_descent_slack=least("descent") if "descent" in outcomes[0].slacks else None,
        execution_error=max(row.execution_error for row in rows),
        margin_discrepancy=max(0.0, -least("margins")),
        repeat_difference=_repeat(bench, snapshot, outcomes[0], batches),
        batches=tuple(rows),
    )


def _repeat(bench: Bench, snapshot: Snapshot, first: _Outcome, batches: TrainingBatches) -> float:
    """Do the first batch once more, from the restored state on."""
    bench.restore(snapshot)
    (samples,) = load_batches(batches, stop=1)
    again, _ = _endpoints(bench, _start(bench, samples))
    return max((again[name] - first.endpoints[name]).abs().max().item() for name in DIRECTIONS)
