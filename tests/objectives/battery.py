"""One battery for every objective: checks as plain functions of a case, so that a sabotage table can run them too."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import oracles
import torch
from objectives import reference
from tolerances import EXACT
from torch import Tensor

from tpkd.objectives import Batch, Objective, create

SEED = 20  # dropout of the released head draws the same mask in every evaluation
HALF = (torch.float16, torch.bfloat16)


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
        return self.name in ("tpkd", "tpkd-no-ce", "safe-full-kl", "tpkd-no-projection", "compensation-only")

    @property
    def has_own_network(self) -> bool:
        return self.name in ("dhkd", "dto-kd")

    @property
    def min_classes(self) -> int:
        return 3 if self.is_direction or self.name == "dkd" else 2


CASES = (
    *(Case(name) for name in ("ce", "kd", "kl-dist", "dkd", "dp-u", "dp-s", "xe-kl", "dhkd", "dto-kd")),
    *(Case(name) for name in ("tpkd", "tpkd-no-ce", "safe-full-kl", "tpkd-no-projection", "compensation-only")),
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


# The checks.


def check_values_are_the_definitions(case: Case) -> None:
    inputs = make_inputs()
    objective = case.objective()
    found = evaluate(objective, inputs).values
    expected = expected_values(case, objective, inputs)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        close(found[name], value, 1e-11, f"loss {name}")  # the reference itself cancels a few digits


def check_gradient(case: Case) -> None:
    """Against central differences of the losses in float64; prescribed directions against non-negative least squares."""
    if case.has_own_network:
        from objectives.two_heads import check_network_gradient

        check_network_gradient(case)
        return
    inputs = make_inputs(count=6)
    objective = case.objective()
    found = evaluate(objective, inputs).leaves.student
    if case.is_direction:
        rows = zip(inputs.student.numpy(), inputs.teacher.numpy(), inputs.labels.tolist(), strict=True)
        expected = np.stack([reference.direction(case.name, z, zt, y, objective.beta) for z, zt, y in rows]) / 6
        close(found, torch.from_numpy(expected), 1e-12, "direction")
        return

    def value(logits: np.ndarray) -> float:
        batch = replace(inputs, student=torch.from_numpy(logits)).batch()
        return float(sum(objective.losses(batch).values()))

    expected = oracles.finite_difference(value, inputs.student.numpy())
    close(found, torch.from_numpy(expected), 1e-7, "gradient")  # rounding of the value over the step of 1e-6


def check_class_permutation(case: Case) -> None:
    """Renaming the classes renames the gradient and changes nothing else."""
    inputs = make_inputs()
    objective = case.objective()
    expected = evaluate(objective, inputs)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(1))
    renamed = copy.deepcopy(objective)
    if case.name == "dhkd":
        head = renamed.modules()["head"]
        last = head if objective.head == "linear" else head[-1]
        last.weight.data, last.bias.data = last.weight.data[order], last.bias.data[order]
    moved = replace(
        inputs,
        student=inputs.student[:, order],
        teacher=inputs.teacher[:, order],
        initial=inputs.initial[:, order],
        labels=order.argsort()[inputs.labels],
    )
    found = evaluate(renamed, moved)
    for name, value in expected.values.items():
        close(found.values[name], value, 1e-12, f"loss {name}")
    close(found.leaves.student, expected.leaves.student[:, order], 1e-12, "student gradient")
    close(found.leaves.features, expected.leaves.features, 1e-12, "feature gradient")


def check_shift_invariance(case: Case) -> None:
    """A constant added to all logits of a network changes nothing; DHKD alone sees the teacher's constant."""
    inputs = make_inputs()
    objective = case.objective()
    expected = evaluate(objective, inputs)
    shift = torch.linspace(-30, 30, len(inputs.labels), dtype=torch.float64).unsqueeze(-1)
    student = evaluate(objective, replace(inputs, student=inputs.student + shift))
    same_step(student, expected, 1e-11, "student shifted")  # the shift itself rounds at 30 * 1e-16
    close(expected.leaves.student.sum(-1), torch.zeros(12), 1e-13, "sum of the gradient")
    others = replace(inputs, teacher=inputs.teacher + shift, initial=inputs.initial - shift)
    shifted = evaluate(objective, others)
    if case.name == "dhkd":
        assert not torch.allclose(shifted.values["distillation"], expected.values["distillation"])
    else:
        same_step(shifted, expected, 1e-11, "teacher shifted")


def check_no_gradient_to_the_teacher(case: Case) -> None:
    leaves = make_inputs().map(lambda tensor: tensor.clone().requires_grad_())
    sum(case.objective().losses(leaves.batch()).values()).backward()
    for tensor in (leaves.teacher, leaves.initial, *leaves.teacher_layers):
        assert tensor.grad is None


def check_masks(case: Case) -> None:
    """Ignored rows full of NaN leave exactly what the other rows alone give, and get a gradient of exactly zero."""
    inputs = make_inputs()
    ignored = torch.zeros(12, dtype=torch.bool)
    ignored[[0, 3, 4, 11]] = True
    objective = case.objective()
    expected = evaluate(objective, inputs.rows(~ignored))
    broken = inputs.map(lambda tensor: tensor.masked_fill(ignored.unsqueeze(-1), torch.nan))
    broken = replace(broken, labels=inputs.labels.masked_fill(ignored, -100))
    found = evaluate(objective, broken)
    for tensor in (found.leaves.student, found.leaves.features, *found.leaves.layers):
        assert bool((tensor[ignored] == 0).all())
    kept = replace(found, leaves=found.leaves.rows(~ignored))
    same_step(kept, expected, 1e-13, "kept rows")


def check_nothing_valid(case: Case) -> None:
    """A zero that keeps the graph, and a zero gradient."""
    inputs = replace(make_inputs(), labels=torch.full((12,), -100))
    objective = case.objective()
    evaluate(objective, make_inputs())
    for broken in (inputs, inputs.map(lambda tensor: tensor * torch.nan)):
        leaves = broken.map(lambda tensor: tensor.detach().requires_grad_())
        assert all(loss.requires_grad for loss in objective.losses(leaves.batch()).values())
        found = evaluate(objective, broken, num_items=0)
        assert all(value == 0 for value in found.values.values())
        assert all(bool((tensor == 0).all()) for tensor in gradient_tensors(found))


def check_accumulation(case: Case) -> None:
    """Micro-batches with the count of the effective batch sum to it, whatever share is ignored."""
    objective = case.objective()
    if not objective.separable:
        assert case.has_own_network  # nonlinear in the whole batch by definition; every other method is a sum
        return
    for share in (0.0, 0.3, 0.9, 1.0):
        inputs = make_inputs(count=40, seed=3)
        ignored = torch.arange(40) < round(share * 40)
        ignored = ignored[torch.randperm(40, generator=torch.Generator().manual_seed(2))]
        inputs = replace(inputs, labels=inputs.labels.masked_fill(ignored, -100))
        count = int((~ignored).sum())
        whole = evaluate(objective, inputs)
        parts = [evaluate(objective, inputs.rows(rows), count) for rows in torch.arange(40).split(7)]
        for name, value in whole.values.items():
            close(torch.stack([part.values[name] for part in parts]).sum(), value, 1e-13, f"{share}: loss {name}")
        student = torch.cat([part.leaves.student for part in parts])
        close(student, whole.leaves.student, 1e-13, f"{share}: student gradient")
        features = torch.cat([part.leaves.features for part in parts])
        close(features, whole.leaves.features, 1e-13, f"{share}: feature gradient")
        parameters = torch.stack([part.parameters for part in parts]).sum(0)
        close(parameters, whole.parameters, 1e-12, f"{share}: own parameters")


def extreme_inputs(lead: float, dtype: torch.dtype) -> Inputs:
    """Every pairing of a student and a teacher that are certain of the label, of another class, or of nothing."""
    shapes = torch.tensor([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [-1, 0, 0, 0], [0, -0.5, 0.5, 0]])
    pairs = [(a, b) for a in range(5) for b in range(5)]
    student, teacher = (lead * shapes[[pair[side] for pair in pairs]] for side in (0, 1))
    inputs = make_inputs(count=25, num_classes=4, dtype=dtype, seed=5)
    inputs = replace(inputs, student=student.to(dtype), teacher=teacher.to(dtype), labels=torch.zeros(25).long())
    return replace(inputs, initial=teacher.flip(0).to(dtype), features=inputs.features * 50)


def check_extremes(case: Case) -> None:
    """Leads of 1,000 in float32 and 500 in float16: finite, and right."""
    for lead, dtype in ((1000.0, torch.float32), (500.0, torch.float16), (100.0, torch.float32)):
        inputs = extreme_inputs(lead, dtype)
        objective = case.objective()
        found = evaluate(objective, inputs)
        for tensor in (*found.values.values(), *gradient_tensors(found)):
            assert bool(tensor.isfinite().all()), f"lead {lead} in {dtype}"
        exact = evaluate(_as_float64(objective), inputs.map(Tensor.double))
        for name, value in exact.values.items():
            close(found.values[name] / value, 1.0, 1e-4 if case.name == "dhkd" else 1e-5, f"lead {lead}: loss {name}")


def _as_float64(objective: Objective) -> Objective:
    wide = copy.deepcopy(objective)
    for module in wide.modules().values():
        module.double()
    return wide


def check_dtypes(case: Case) -> None:
    """Half precision is computed in float32 and its gradient returned in half; float64 stays float64."""
    for dtype in (torch.float64, torch.float32, *HALF):
        inputs = make_inputs(dtype=dtype)
        objective = case.objective()
        found = evaluate(objective, inputs)  # asserts the dtype of every gradient
        computed = torch.float32 if dtype in HALF else dtype
        assert all(value.dtype == computed for value in found.values.values())
        exact = evaluate(_as_float64(objective), inputs.map(Tensor.double))
        for name, value in exact.values.items():
            close(found.values[name], value, EXACT[computed] * 10, f"{dtype}: loss {name}")  # sums over T^2 and classes
        tolerance = EXACT[dtype] * (10 if dtype == computed else 1)
        for a, b in zip(gradient_tensors(found)[:-1], gradient_tensors(exact)[:-1], strict=True):
            close(a, b, tolerance, f"{dtype}: gradient")


def check_needs(case: Case) -> None:
    """What an objective names is enough, and each missing part is refused by name."""
    needs = case.objective().needs
    full = make_inputs().batch()
    held = needs & set(vars(full))
    lean = Batch(student_logits=full.student_logits, **{name: getattr(full, name) for name in held})
    case.objective().losses(lean)
    for name in held:
        try:
            case.objective().losses(replace(lean, **{name: None}))
        except ValueError as error:
            assert name in str(error)
        else:
            raise AssertionError(f"a batch without {name} was accepted")


def check_state_round_trip(case: Case) -> None:
    """A fresh objective that loads the state of a used one continues exactly like it."""
    inputs = make_inputs()
    used = case.objective()
    evaluate(used, inputs)
    if "post_step" in used.needs:
        used.after_step(make_inputs(seed=9).batch())
    state = {name: value.clone() for name, value in used.state_dict().items()}
    fresh = create(case.name, **case.settings)
    fresh.load_state_dict(state)
    assert fresh.state_dict().keys() == state.keys()
    same_step(evaluate(fresh, inputs), evaluate(used, inputs), 0.0, "resumed")


CHECKS = (
    check_values_are_the_definitions,
    check_gradient,
    check_class_permutation,
    check_shift_invariance,
    check_no_gradient_to_the_teacher,
    check_masks,
    check_nothing_valid,
    check_accumulation,
    check_extremes,
    check_dtypes,
    check_needs,
    check_state_round_trip,
)
