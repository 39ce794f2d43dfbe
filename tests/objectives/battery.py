"""One battery for every objective: checks as plain functions of a case, so that a sabotage table can run them too."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import oracles
from objectives import reference
from objectives.cases import Case, Inputs, close, evaluate, expected_values, gradient_tensors, make_inputs, same_step
from objectives.two_heads import check_network_gradient
from strategies import INTEGER_TYPES, labels_of_type
from tolerances import EXACT
from tpkd.objectives import Batch, Objective, create

HALF = (torch.float16, torch.bfloat16)


def check_values_are_the_definitions(case: Case) -> None:
    if not case.has_reference:
        return
    inputs = make_inputs()
    objective = case.objective()
    found = evaluate(objective, inputs).values
    expected = expected_values(case, objective, inputs)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        close(found[name], value, 1e-11, f"loss {name}")  # the reference itself cancels a few digits


def check_gradient(case: Case) -> None:
    """Central differences of the losses in float64; prescribed directions against non-negative least squares."""
    if not case.is_of_rows:
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
    if not case.has_reference:
        return
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


def check_integer_types_of_labels(case: Case) -> None:
    """Labels mean the same in every integer type, however few numbers it has; the signed ones have -100 as well."""
    for dtype in INTEGER_TYPES:
        for num_classes in (5, 128, 256, 300):
            inputs = replace(make_inputs(6, num_classes), labels=labels_of_type(dtype, 6, num_classes))
            if dtype.is_signed:
                inputs.labels[3] = -100
            objective = case.objective()
            expected = evaluate(objective, replace(inputs, labels=inputs.labels.long()))
            same_step(evaluate(objective, inputs), expected, 0.0, f"{dtype} of {num_classes} classes")


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
        assert not case.is_of_rows  # nonlinear in the whole batch by definition; every other method is a sum
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
        with pytest.raises(ValueError, match=name):
            case.objective().losses(replace(lean, **{name: None}))


def check_state_round_trip(case: Case) -> None:
    """A fresh objective that loads the state of a used one continues exactly like it."""
    inputs = make_inputs()
    used = case.objective()
    evaluate(used, inputs)
    if "post_step" in used.needs:
        used.after_step(make_inputs(seed=9).batch())
    state = copy.deepcopy(used.state_dict())
    fresh = create(case.name, **case.settings)
    fresh.load_state_dict(state)
    assert fresh.state_dict().keys() == state.keys()
    same_step(evaluate(fresh, inputs), evaluate(used, inputs), 0.0, "resumed")


def check_min_classes(case: Case) -> None:
    """An objective of rows takes as few classes as it says and no fewer."""
    if not case.is_of_rows:
        return
    fewest = case.objective().min_classes
    losses = case.objective().losses(make_inputs(4, fewest).batch())
    assert all(value.isfinite() for value in losses.values())
    with pytest.raises(ValueError, match=f"expected at least {fewest} classes"):
        case.objective().losses(make_inputs(4, fewest - 1).batch())


CHECKS = (
    check_values_are_the_definitions,
    check_gradient,
    check_class_permutation,
    check_shift_invariance,
    check_no_gradient_to_the_teacher,
    check_masks,
    check_integer_types_of_labels,
    check_nothing_valid,
    check_accumulation,
    check_extremes,
    check_dtypes,
    check_needs,
    check_min_classes,
    check_state_round_trip,
)
