"""One optimiser step of the effective batch: exact over micro-batches and processes, for every objective."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from tpkd.data.batches import SampleBatch
from tpkd.geometry.averaging import average_conditionals
from tpkd.geometry.top_k import EMPTY, TopK
from tpkd.objectives.base import Batch
from tpkd.objectives.reduction import IGNORE_INDEX
from tpkd.objectives.weights import class_sample_weights
from tpkd.teacher.mixture import mixture_log_probs
from tpkd.teacher.several import SeveralTeachers
from tpkd.teacher.teacher import Answers, CachedTeacher, Teacher
from tpkd.theory.monitor import OF_THE_STEP, observe
from tpkd.training.randomness import random_state, replayed
from tpkd.training.run import Run

_NAMED_SAMPLES = 8


class NonFiniteError(RuntimeError):
    """A loss or gradient is NaN or infinite; the step was not taken, and the message names the samples."""


@dataclass(frozen=True)
class StepOutcome:
    """What a step did, over all micro-batches and processes."""

    losses: dict[str, float]
    metrics: dict[str, float]
    """The objective's own numbers, averaged over valid samples."""
    monitor: dict[str, float]
    """Empty unless asked for."""
    gradient_norm: float
    skipped: bool
    """Whether the scaler of mixed precision found an overflow and left the parameters alone."""

    @property
    def loss(self) -> float:
        """The sum of the losses."""
        return sum(self.losses.values())


def name_samples(samples: Sequence[int]) -> str:
    """The first of some samples by their ids, and how many more there are.

    Example:
        >>> name_samples([4, 2]), name_samples(range(10))
        ('samples 4, 2', 'samples 0, 1, 2, 3, 4, 5, 6, 7 and 2 more')
    """
    more = f" and {len(samples) - _NAMED_SAMPLES} more" if len(samples) > _NAMED_SAMPLES else ""
    return f"samples {', '.join(map(str, samples[:_NAMED_SAMPLES]))}{more}"


def take_step(run: Run, step: int, samples: SampleBatch, *, look: bool = False) -> StepOutcome:
    """Move the parameters once, by the gradient of the mean over the valid samples of the whole batch.

    Args:
        run: everything the step needs.
        step: its number, counted from 1.
        samples: this process's share.
        look: whether to observe the batch against the teacher.

    Raises:
        NonFiniteError: before anything moved.
    """
    before = random_state() if "post_step" in run.objective.needs else None
    count = run.accelerator.reduce(_counted_rows(run, samples).sum().to(run.accelerator.device))
    seen = _Seen(count, _sum_of_weights(run, samples))
    run.optimizer.zero_grad()
    if "objective_gradients" in run.objective.needs:
        _combined_gradient(run, step, samples, seen, look)
    else:
        _summed_gradient(run, step, samples, seen, look)
    totals = seen.totals(run)
    if not all(map(_is_finite, totals["loss"].values())):
        raise NonFiniteError(f"step {step}: the loss is not finite, {seen.culprits()}; nothing was changed")
    norm = _clip(run)
    if not _is_finite(norm) and run.accelerator.scaler is None:
        raise NonFiniteError(f"step {step}: the gradient is not finite, {seen.culprits()}; nothing was changed")
    run.optimizer.step()
    skipped = bool(run.accelerator.optimizer_step_was_skipped)
    if before is not None and not skipped:
        with replayed(before, run.module), torch.no_grad():
            run.objective.after_step(_effective_batch(run, step, samples, seen.num_items))
    return StepOutcome(totals["loss"], totals["metric"], totals["monitor"], norm, skipped)


def _sum_of_weights(run: Run, samples: SampleBatch) -> Tensor | None:
    """Of the valid samples of all processes; None where every sample counts once."""
    if run.class_weights is None:
        return None
    weights = class_sample_weights(samples.labels, run.class_weights.to(samples.labels.device))
    total: Tensor = run.accelerator.reduce(weights.sum().to(run.accelerator.device))
    return total


def _summed_gradient(run: Run, step: int, samples: SampleBatch, seen: "_Seen", look: bool) -> None:
    """The gradient of the sum of the losses, accumulated over micro-batches and averaged over processes by DDP."""
    pieces = list(run.micro_batches(step, samples))
    for position, piece in enumerate(pieces):
        last = position == len(pieces) - 1
        with nullcontext() if last else run.accelerator.no_sync(run.module):
            batch, teacher = _forward(run, step, piece, seen.num_items, look)
            losses = run.objective.losses(batch)
            # Processes are averaged, but their losses are parts of one mean already.
            total = sum(losses.values(), torch.zeros((), device=run.accelerator.device))
            run.accelerator.backward((total + _touch(run)) * run.accelerator.num_processes)
        seen.add(run, piece, batch, losses, teacher if look else None)


def _touch(run: Run) -> Tensor | float:
    """Zero times every parameter of the objective's own networks, so that each has a gradient.

    A second head that finds no valid row in its share would have none: other processes would wait for it, and weight
    decay would depend on how a batch is split.
    """
    modules = run.objective.modules().values()
    return sum((0.0 * parameter.sum() for module in modules for parameter in module.parameters()), 0.0)


def _combined_gradient(run: Run, step: int, samples: SampleBatch, seen: "_Seen", look: bool) -> None:
    """One gradient per loss over the whole batch, combined into one by the objective."""
    parameters = [parameter for parameter in run.module.parameters() if parameter.requires_grad]
    scaler = run.accelerator.scaler
    gradients: dict[str, Tensor] = {}
    with run.accelerator.no_sync(run.module):
        for piece in run.micro_batches(step, samples):
            batch, teacher = _forward(run, step, piece, seen.num_items, look)
            losses = run.objective.losses(batch)
            for position, (name, loss) in enumerate(losses.items(), start=1):
                # Scaled, because half-precision activations carry this gradient too.
                parts = torch.autograd.grad(
                    loss if scaler is None else scaler.scale(loss),
                    parameters,
                    retain_graph=position < len(losses),
                    allow_unused=True,
                    materialize_grads=True,
                )
                flat = torch.cat([part.reshape(-1) for part in parts])
                gradients[name] = gradients[name] + flat if name in gradients else flat
            seen.add(run, piece, batch, losses, teacher if look else None)
    scale = 1.0 if scaler is None else scaler.get_scale()
    whole = {name: run.accelerator.reduce(gradient) / scale for name, gradient in gradients.items()}
    values = {name: whole[name].new_tensor(value) for name, value in seen.totals(run)["loss"].items()}
    combined = run.objective.combine(whole, values) * scale
    sizes = [parameter.numel() for parameter in parameters]
    for parameter, part in zip(parameters, torch.split(combined, sizes), strict=True):
        parameter.grad = part.view_as(parameter).to(parameter.dtype).clone()


def _forward(run: Run, step: int, piece: SampleBatch, num_items: Tensor, look: bool) -> tuple[Batch, Answers | None]:
    """What the objective sees, and what the teacher said: the same logits, unless there are several teachers."""
    needs, weights = run.objective.needs, run.class_weights
    layers = run.config.student.layers if "layer_features" in needs else ()
    output = run.module(piece.inputs, layers)
    teacher, initial = None, None if run.initial is None else _answers(run.initial, piece).logits
    assert not isinstance(initial, TopK)  # a cache of the student's own start holds all classes
    if run.teacher is not None and (look or "teacher_logits" in needs):
        teacher = _answers(run.teacher, piece, with_layers=bool(layers))
    labels = piece.labels if run.dataset.labelled else None
    batch = Batch(
        student_logits=output["logits"],
        labels=labels,
        teacher_logits=None if teacher is None else _taught(run, teacher, labels),
        initial_logits=initial,
        features=output["features"] if "features" in needs else None,
        layer_features=output["layer_features"] if layers else None,
        teacher_layer_features=teacher.layer_features if teacher is not None and layers else None,
        epoch=run.epoch_of(step),
        num_epochs=run.config.epochs,
        num_items=num_items,
        sample_weights=None if weights is None else class_sample_weights(piece.labels, weights.to(piece.labels.device)),
    )
    return batch, teacher


def _taught(run: Run, teacher: Answers, labels: Tensor | None) -> Tensor | TopK:
    """What the objective learns from: the teacher's logits, or its own average of several teachers."""
    if teacher.members and "teacher_logits" in run.objective.needs:
        return run.objective.average_teachers(teacher.members, labels, teacher.weights)
    return teacher.logits


def _answers(teacher: Teacher, piece: SampleBatch, *, with_layers: bool = False) -> Answers:
    if isinstance(teacher, SeveralTeachers):
        return teacher.join([_answers(member, piece) for member in teacher.members])
    answers = teacher.answer(piece.inputs, piece.sample_ids, piece.view_ids, with_layers=with_layers)
    partners = piece.partners
    if partners is None or not isinstance(teacher, CachedTeacher):  # a network has seen the mixed images themselves
        return answers
    others = teacher.answer(sample_ids=partners.sample_ids, view_ids=partners.view_ids)
    assert isinstance(answers.logits, Tensor)
    assert isinstance(others.logits, Tensor)
    return replace(answers, logits=mixture_log_probs(answers.logits, others.logits, partners.own_shares))


def _effective_batch(run: Run, step: int, samples: SampleBatch, num_items: Tensor) -> Batch:
    """The whole batch of all processes, evaluated without a graph."""
    batches = [_forward(run, step, piece, num_items, look=False)[0] for piece in run.micro_batches(step, samples)]
    merged = {field.name: [getattr(batch, field.name) for batch in batches] for field in fields(Batch)}
    return replace(batches[0], **{name: _merge(run, name, values) for name, values in merged.items()})


def _merge(run: Run, name: str, values: list[Any]) -> Any:
    if isinstance(values[0], tuple | list):
        return tuple(_merge(run, name, list(layer)) for layer in zip(*values, strict=True))
    if isinstance(values[0], TopK):
        parts = {field.name: [getattr(value, field.name) for value in values] for field in fields(TopK)}
        return TopK(**{part: _merge(run, part, tensors) for part, tensors in parts.items()})
    if not isinstance(values[0], Tensor) or name == "num_items":
        return values[0]
    # Shares differ by a sample at most; the label of a padded row says that it is to be ignored: of a soft one, zeros.
    padding = {"labels": 0 if values[0].is_floating_point() else IGNORE_INDEX, "indices": EMPTY}
    whole = run.accelerator.pad_across_processes(torch.cat(values), dim=0, pad_index=padding.get(name, 0))
    return run.accelerator.gather(whole)


def _clip(run: Run) -> float:
    """The norm of the whole gradient, clipped where the configuration says so."""
    if run.config.clip_norm is not None:
        return float(run.accelerator.clip_grad_norm_(run.module.parameters(), run.config.clip_norm))
    run.accelerator.unscale_gradients(run.optimizer)
    gradients = [parameter.grad for parameter in run.module.parameters() if parameter.grad is not None]
    return float(torch.nn.utils.get_total_norm(gradients))


def _is_finite(value: float) -> bool:
    return abs(value) < float("inf")


class _Seen:
    """Sums over the micro-batches of a step, and who was in it."""

    def __init__(self, count: Tensor, sum_of_weights: Tensor | None) -> None:
        self.count = count
        """Valid samples: what metrics and the monitor, which know no weights, are averaged over."""
        self.num_items = count if sum_of_weights is None else sum_of_weights
        """What the losses are divided by."""
        self._sums: dict[str, dict[str, Tensor]] = {"loss": {}, "metric": {}, "monitor": {}}
        self._rows: list[tuple[SampleBatch, Batch]] = []
        self._totals: dict[str, dict[str, float]] | None = None

    def add(
        self, run: Run, piece: SampleBatch, batch: Batch, losses: Mapping[str, Tensor], watched: Answers | None
    ) -> None:
        """Count a micro-batch; where the teacher's answers are given, look at the student beside them."""
        batch = replace(batch, student_logits=batch.student_logits.detach())
        share = _counted_rows(run, piece).sum() / self.count.clamp(min=1)
        self._add("loss", {name: loss.detach() for name, loss in losses.items()})
        with torch.no_grad():
            self._add("metric", {name: value.to(share) * share for name, value in run.objective.metrics(batch).items()})
        if watched is not None:
            labels = _keep_rows(piece.labels, _finite_rows(batch))
            found = _observe(batch.student_logits, watched, labels, run.objective.step_temperature)
            self._add("monitor", {name: value * share for name, value in found.items()})
        self._rows.append((piece, batch))

    def _add(self, kind: str, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            self._sums[kind][name] = self._sums[kind].get(name, 0.0) + value

    def totals(self, run: Run) -> dict[str, dict[str, float]]:
        """Every sum over all processes, by kind and name; one exchange."""
        if self._totals is None:
            keys = [(kind, name) for kind, values in self._sums.items() for name in values]
            stacked = torch.cat([self._sums[kind][name].reshape(1) for kind, name in keys])
            numbers = run.accelerator.reduce(stacked).tolist()
            self._totals = {kind: {} for kind in self._sums}
            for (kind, name), number in zip(keys, numbers, strict=True):
                self._totals[kind][name] = number
        return self._totals

    def culprits(self) -> str:
        """The samples whose logits are not finite, or all samples of this process if every row is finite."""
        chosen = torch.cat([piece.sample_ids[~_finite_rows(batch).cpu()] for piece, batch in self._rows]).tolist()
        problem = "logits are not finite for" if chosen else "the batch holds"
        return f"{problem} {name_samples(chosen or torch.cat([piece.sample_ids for piece, _ in self._rows]).tolist())}"


def _counted_rows(run: Run, samples: SampleBatch) -> Tensor:
    """Which samples count: those with a valid label, or all where training samples have none."""
    valid = _valid_rows(samples.labels)
    return valid if run.dataset.labelled else torch.ones_like(valid)


def _observe(student_logits: Tensor, teacher: Answers, labels: Tensor, temperature: float) -> dict[str, Tensor]:
    """What a monitor says of a batch; of several teachers it speaks as of one that says the average probabilities.

    How much of the step is protection is said of the protected step itself, which follows the average conditionals.
    """
    found = observe(student_logits, teacher.logits, labels, temperature=temperature)
    if teacher.members:
        taught = average_conditionals(teacher.members, labels, weights=teacher.weights, temperature=temperature)
        step = observe(student_logits, taught, labels, temperature=temperature)
        found |= {name: step[name] for name in OF_THE_STEP}
    return found


def _valid_rows(labels: Tensor) -> Tensor:
    """Which labels are valid: those of a class that is not to be ignored, or soft ones that are not all zero."""
    return (labels != 0).any(-1) if labels.is_floating_point() else labels != IGNORE_INDEX


def _keep_rows(labels: Tensor, kept: Tensor) -> Tensor:
    """The labels, those of all other rows to be ignored."""
    if labels.is_floating_point():
        return torch.where(kept.unsqueeze(-1), labels, 0.0)
    return torch.where(kept, labels, IGNORE_INDEX)


def _finite_rows(batch: Batch) -> Tensor:
    """Rows in which nothing is NaN or infinite, but for what a truncated teacher may say: nothing, or probability 0."""
    finite, teacher = batch.student_logits.isfinite().all(-1), batch.teacher_logits
    if teacher is None:
        return finite
    if isinstance(teacher, Tensor):
        return finite & teacher.isfinite().all(-1)
    finite = finite & ((teacher.log_probs < torch.inf) | (teacher.indices == EMPTY)).all(-1)
    if teacher.rest_log_probs is not None:
        finite = finite & (teacher.rest_log_probs < torch.inf)
    if teacher.label_log_probs is not None:
        finite = finite & (teacher.label_log_probs != torch.inf)
    return finite
