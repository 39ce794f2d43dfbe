"""Objectives with inputs, served as a training loop would serve them, and what each must be worth by its definition."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import oracles
from objectives import reference
from tpkd.objectives import Batch, Objective, RowObjective, create, describe, names
from tpkd.objectives.tpkd import DirectionObjective

SEED = 20  # dropout of the released head draws the same mask in every evaluation


@dataclass(frozen=True)
class Inputs:
    """Everything any objective asks for, as independent leaves."""

    student: Tensor
    teacher: Tensor
    labels: Tensor
    initial: Tensor
    features: Tensor
    layers: tuple[Tensor, ...]
    teacher_layers: tuple[Tensor, ...]

    def map(self, function: Callable[[Tensor], Tensor]) -> "Inputs":
        """Apply a function to every floating tensor."""
        single = {name: function(getattr(self, name)) for name in ("student", "teacher", "initial", "features")}
        layers, teachers = tuple(map(function, self.layers)), tuple(map(function, self.teacher_layers))
        return replace(self, **single, layers=layers, teacher_layers=teachers)

    def rows(self, index: Any) -> "Inputs":
        """Some of the samples."""
        return replace(self.map(lambda tensor: tensor[index]), labels=self.labels[index])

    def batch(self, num_items: int | None = None) -> Batch:
        """As a loop would hand it over, in epoch 3 of 100."""
        return Batch(
            student_logits=self.student,
            labels=self.labels,
            teacher_logits=self.teacher,
            initial_logits=self.initial,
            features=self.features,
            layer_features=self.layers,
            teacher_layer_features=self.teacher_layers,
            epoch=3,
            num_epochs=100,
            num_items=num_items,
        )


def make_inputs(count: int = 12, num_classes: int = 5, dtype: torch.dtype = torch.float64, seed: int = 0) -> Inputs:
    """Ordinary inputs; both targets of a partition and both signs of every difference occur."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return (2 * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)

    logits = [normal(count, num_classes) for _ in range(3)]
    labels = torch.randint(num_classes, (count,), generator=generator)
    layers, teacher_layers = (normal(count, 3), normal(count, 4)), (normal(count, 5), normal(count, 4))
    return Inputs(logits[0], logits[1], labels, logits[2], normal(count, 4), layers, teacher_layers)


@dataclass(frozen=True)
class Case:
    """One objective under one choice of settings."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.name, *map(str, self.settings.values())])

    def objective(self) -> Objective:
        """A fresh one, with the same initial weights every time."""
        torch.manual_seed(SEED)
        return create(self.name, **self.settings)

    @property
    def is_direction(self) -> bool:
        """Whether its gradient is a prescribed direction instead of a derivative."""
        return isinstance(self.objective(), DirectionObjective)

    @property
    def is_of_rows(self) -> bool:
        return isinstance(self.objective(), RowObjective)

    @property
    def has_reference(self) -> bool:
        """Whether `expected_values` knows its definition; any other method is compared in a test of its own."""
        return self.name in PAPER


PAPER = {method.name for method in describe() if method.paper_accuracy or method.ablation}
CASES = (
    *map(Case, names()),
    Case("kd", {"temperature": 2.5, "ce_weight": 0.1, "kd_weight": 0.9}),
    Case("dkd", {"warmup_epochs": 0}),
    Case("xe-kl", {"label_term": "double-softmax", "mix": 0.3, "temperature": 2.0}),
    Case("dhkd", {"preset": "imagenet-release"}),
    Case("dhkd", {"divergence": "binary-kl", "head": "linear"}),
    Case("dto-kd", {"variant": "exact"}),
    Case("dto-kd", {"variant": "literal"}),
    Case("dto-kd", {"variant": "exact", "layer_features": "own-objective"}),
    Case("dto-kd", {"normalise": False, "layer_features": "with-distillation"}),
    Case("tpkd", {"beta": 2.0}),
)


@dataclass(frozen=True)
class Evaluation:
    """Losses by name, and the step a loop would take."""

    values: dict[str, Tensor]
    leaves: Inputs
    """The gradient with respect to each input, in its place."""
    parameters: Tensor
    """The gradient with respect to the objective's own networks."""

    @property
    def total(self) -> Tensor:
        return torch.stack(list(self.values.values())).sum()


def evaluate(objective: Objective, inputs: Inputs, num_items: int | None = None) -> Evaluation:
    """Losses and combined gradient of one batch, served exactly as a training loop would."""
    leaves = inputs.map(lambda tensor: tensor.detach().clone().requires_grad_())
    build_networks(objective, leaves.batch())
    torch.manual_seed(SEED)
    losses = objective.losses(leaves.batch(num_items))
    sources = [leaves.student, leaves.features, *leaves.layers]
    parameters = [p for module in objective.modules().values() for p in module.parameters()]
    gradients = {}
    for name, loss in losses.items():
        assert loss.ndim == 0, f"{name} is not a scalar"
        found = torch.autograd.grad(loss, sources + parameters, retain_graph=True, allow_unused=True)
        filled = [torch.zeros_like(s) if g is None else g for s, g in zip(sources + parameters, found, strict=True)]
        for source, gradient in zip(sources + parameters, filled, strict=True):
            assert gradient.dtype == source.dtype
        gradients[name] = torch.cat([g.reshape(-1).double() for g in filled])
    values = {name: loss.detach() for name, loss in losses.items()}
    if "objective_gradients" in objective.needs:
        combined = objective.combine(gradients, values)
    else:
        combined = torch.stack(list(gradients.values())).sum(0)
    pieces = iter(combined.split([s.numel() for s in sources] + [sum(p.numel() for p in parameters)]))
    student, features, *layers = [next(pieces).view_as(s) for s in sources]
    zeros = inputs.map(torch.zeros_like)
    return Evaluation(values, replace(zeros, student=student, features=features, layers=tuple(layers)), next(pieces))


def build_networks(objective: Objective, batch: Batch) -> None:
    """Let the objective build what it builds at its first batch, so that this does not move the dropout mask."""
    try:
        objective.modules()
    except RuntimeError:
        torch.manual_seed(SEED)
        with torch.no_grad():
            objective.losses(batch)


def close(found: Tensor, expected: Tensor | float, tolerance: float, what: str) -> None:
    expected = torch.as_tensor(expected, dtype=torch.float64)
    error = (found.double() - expected).abs()
    allowed = tolerance * expected.abs().clamp(min=1)
    assert bool((error <= allowed).all()), f"{what}: off by {error.max().item():.3g}"


def same_step(found: Evaluation, expected: Evaluation, tolerance: float, what: str) -> None:
    """The same losses and the same gradient everywhere."""
    assert found.values.keys() == expected.values.keys()
    for name, value in expected.values.items():
        close(found.values[name], value, tolerance, f"{what}: loss {name}")
    pairs = zip(gradient_tensors(found), gradient_tensors(expected), strict=True)
    for a, b in pairs:
        close(a, b, tolerance, f"{what}: gradient")


def gradient_tensors(evaluation: Evaluation) -> list[Tensor]:
    leaves = evaluation.leaves
    return [leaves.student, leaves.features, *leaves.layers, evaluation.parameters]


# What each objective must be worth, by its definition.


def expected_values(case: Case, objective: Objective, inputs: Inputs) -> dict[str, float]:
    """The losses of the case from the reference, averaged over all rows."""
    arrays = {name: getattr(inputs, name).double().numpy() for name in ("student", "teacher", "initial", "labels")}
    rows = list(zip(*arrays.values(), strict=True))

    def mean(function: Callable[..., float]) -> float:
        return float(np.mean([function(z, zt, z0, int(y)) for z, zt, z0, y in rows]))

    ce = mean(lambda z, zt, z0, y: oracles.label_loss(z, y))
    s = objective
    if case.is_direction:
        return {"loss": mean(lambda z, zt, z0, y: reference.value(case.name, z, zt, y, s.beta))}
    if case.name == "ce":
        return {"loss": ce}
    if case.name == "kd":
        kd = mean(lambda z, zt, z0, y: reference.imitation(z, zt, s.temperature))
        return {"loss": s.ce_weight * ce + s.kd_weight * kd}
    if case.name == "kl-dist":
        return {"loss": mean(lambda z, zt, z0, y: reference.imitation(z, zt))}
    if case.name == "dkd":
        warmup = 3 / 20 if s.warmup_epochs else 1.0
        return {"loss": ce + warmup * mean(lambda z, zt, z0, y: reference.dkd(z, zt, y))}
    if case.name in ("dp-u", "dp-s"):
        by_label = case.name == "dp-s"

        def partition(z, zt, z0, y):
            return reference.imitation(z, reference.partition_target(zt, z0, y if by_label else None))

        return {"loss": mean(partition)}
    if case.name == "xe-kl":
        if s.label_term == "double-softmax":
            ce = mean(lambda z, zt, z0, y: reference.double_softmax(z, y))
        kl = mean(lambda z, zt, z0, y: reference.imitation(z, zt, s.temperature))
        return {"loss": s.mix * kl + (1 - s.mix) * ce}
    if case.name == "dhkd":
        return {"label": ce, "distillation": s.alpha * _second_head(objective, inputs)}
    return _trade_off(objective, inputs, ce, mean(lambda z, zt, z0, y: reference.imitation(z, zt)))


def _second_head(objective: Objective, inputs: Inputs) -> float:
    torch.manual_seed(SEED)
    auxiliary = objective.modules()["head"](inputs.features).detach().double().numpy()
    function = {"binary-kl-norm": reference.binary_kl_norm, "binary-kl": reference.binary_kl}[objective.divergence]
    return float(np.mean([function(a, zt) for a, zt in zip(auxiliary, inputs.teacher.double().numpy(), strict=True)]))


def _trade_off(objective: Objective, inputs: Inputs, ce: float, kl: float) -> dict[str, float]:
    if objective.layer_features == "none":
        return {"label": ce, "distillation": kl}
    distances = []
    projectors = objective.modules()["projectors"]
    for projector, student, teacher in zip(projectors, inputs.layers, inputs.teacher_layers, strict=True):
        projected = (student @ projector.weight.T).detach().numpy()
        distances += [reference.feature_distance(a, b) for a, b in zip(projected, teacher.numpy(), strict=True)]
    features = float(np.mean(distances))
    if objective.layer_features == "with-distillation":
        return {"label": ce, "distillation": kl + features}
    return {"label": ce, "distillation": kl, "features": features}
