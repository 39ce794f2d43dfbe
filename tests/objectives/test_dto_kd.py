"""DTO-KD: its variants over real steps, its feature term, and what a checkpoint of it holds."""

import copy
from dataclasses import replace

import pytest
import torch

from objectives.cases import make_inputs
from objectives.two_heads import TwoHeads
from tpkd.objectives import DTOKD, create, layer_projectors

VARIANTS = ("amortised", "exact", "literal")


def train(objective, steps=30, lr=0.05, micro_batches=1, explicit=True):
    """Plain gradient descent on the small network, served as a loop would; returns the losses of every step."""
    inputs = make_inputs(count=12, seed=2)
    network = TwoHeads(inputs, seed=2)
    history = []
    for _ in range(steps):
        gradients, values = {}, {}
        parts = torch.arange(12).chunk(micro_batches)
        for rows in parts:
            whole = network.batch()
            picked = replace(
                whole,
                student_logits=whole.student_logits[rows],
                labels=whole.labels[rows],
                teacher_logits=whole.teacher_logits[rows],
                num_items=12,
            )
            for name, loss in objective.losses(picked).items():
                pieces = torch.autograd.grad(loss, network.parameters, retain_graph=True)
                flat = torch.cat([piece.reshape(-1) for piece in pieces])
                gradients[name] = gradients.get(name, 0) + flat
                values[name] = values.get(name, 0) + loss.detach()
        step = objective.combine(gradients, values if explicit else None)
        for parameter, piece in zip(network.parameters, step.split([12, 20]), strict=True):
            parameter.data -= lr * piece.view_as(parameter)
        if "post_step" in objective.needs:
            with torch.no_grad():
                objective.after_step(network.batch())
        history.append(torch.stack(list(values.values())))
    return torch.stack(history)


@pytest.mark.parametrize("variant", VARIANTS)
def test_half_precision_gradients_come_back_in_half_precision_and_leave_the_weights_wide(variant):
    objective = DTOKD(variant=variant)
    inputs = make_inputs(dtype=torch.float16)
    losses = objective.losses(inputs.batch())
    gradients = {name: torch.tensor([300.0, -2.0, i], dtype=torch.float16) for i, name in enumerate(losses)}
    tiny = {name: torch.tensor(1e-4) for name in losses}
    step = objective.combine(gradients, tiny)
    assert step.dtype == torch.float16
    objective.after_step(inputs.batch())
    assert objective.weights.dtype == torch.float32


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_lowers_both_losses(variant):
    history = train(DTOKD(variant=variant))
    assert (history[-1] < history[0]).all()


def test_what_improved_more_loses_weight():
    objective = DTOKD()
    inputs = make_inputs()
    losses = objective.losses(inputs.batch())
    objective.combine({name: torch.zeros(3) for name in losses})
    better = replace(inputs, student=inputs.teacher)  # imitation complete, labels as the teacher has them
    objective.after_step(better.batch())
    label, distillation = objective.weights
    assert distillation < 0.5 < label
    torch.testing.assert_close(label + distillation, torch.ones((), dtype=label.dtype))


def test_values_left_out_are_those_seen_since_the_last_step():
    """Also over micro-batches, and untouched by an evaluation in between."""
    torch.testing.assert_close(train(DTOKD()), train(DTOKD(), explicit=False), atol=0, rtol=0)
    torch.testing.assert_close(train(DTOKD()), train(DTOKD(), micro_batches=3, explicit=False), atol=1e-12, rtol=0)


def test_an_evaluation_between_two_steps_is_not_counted():
    inputs = make_inputs()
    results = []
    for evaluations in (0, 2):
        objective = DTOKD()
        losses = objective.losses(inputs.batch())
        with torch.no_grad():
            for _ in range(evaluations):
                objective.losses(inputs.batch())
        gradients = {name: torch.ones(3, dtype=torch.float64) for name in losses}
        results.append(objective.combine(gradients | {"label": 2 * gradients["label"]}))
    assert torch.equal(*results)


@pytest.mark.parametrize("variant", ["amortised", "literal"])
@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_moves_no_weight(variant, broken):
    inputs = make_inputs()
    objective = DTOKD(variant=variant)
    for when in ("before", "after"):
        start = copy.deepcopy(objective.state_dict())
        losses = objective.losses(inputs.batch())
        values = dict(losses)
        if when == "before":
            values["label"] = torch.tensor(broken, dtype=torch.float64)
        objective.combine({name: torch.zeros(3) for name in losses}, values)
        after = replace(inputs, student=inputs.student * broken) if when == "after" else inputs
        objective.after_step(after.batch())
        for name, value in objective.state_dict().items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(start[name])), (when, name)


def test_literal_variant_is_the_printed_update():
    """pi <- softmax(Adam(pi, (sum_j pi_j log L_j) log L_i)): from its start the first Adam step has length lr."""
    objective = DTOKD(variant="literal", weight_decay=0.0)
    inputs = make_inputs()
    losses = objective.losses(inputs.batch())
    objective.combine({name: torch.zeros(3) for name in losses})
    objective.after_step(inputs.batch())
    logs = torch.stack(list(losses.values())).log()
    moved = 0.5 - 0.025 * (logs.mean() * logs).sign()
    torch.testing.assert_close(objective.weights, moved.softmax(0), atol=1e-7, rtol=0)


def test_softmax_of_the_weights_themselves_contracts_to_uniform():
    """Why the printed update cannot be meant: (.99, .01) -> (.73, .27) -> (.61, .39) without any gradient."""
    objective = DTOKD(variant="literal", weight_lr=0.0)
    state = objective.state_dict()
    objective.load_state_dict(state | {"balance.weights": torch.tensor([0.99, 0.01])})
    inputs = make_inputs()
    for expected in (0.73, 0.61):
        losses = objective.losses(inputs.batch())
        objective.combine({name: torch.zeros(3) for name in losses})
        objective.after_step(inputs.batch())
        assert objective.weights[0].item() == pytest.approx(expected, abs=0.005)


def test_resuming_from_a_checkpoint_continues_exactly():
    used = DTOKD()
    train(used, steps=5)
    fresh = DTOKD()
    fresh.load_state_dict(copy.deepcopy(used.state_dict()))
    assert torch.equal(train(fresh, steps=5), train(used, steps=5))


def test_metrics_show_the_weights():
    batch = make_inputs().batch()
    assert DTOKD().metrics(batch) == {"weight_label": torch.tensor(0.5), "weight_distillation": torch.tensor(0.5)}
    assert DTOKD(variant="exact").metrics(batch) == {}


def test_needs_follow_the_settings():
    always = {"labels", "teacher_logits", "objective_gradients"}
    features = {"layer_features", "teacher_layer_features"}
    assert DTOKD().needs == always | {"post_step"}
    assert DTOKD(variant="literal").needs == always | {"post_step"}
    assert DTOKD(variant="exact").needs == always
    assert DTOKD(layer_features="own-objective").needs == always | features | {"post_step"}
    assert not DTOKD().separable


def test_steps_out_of_order_are_refused():
    objective = DTOKD()
    with pytest.raises(RuntimeError, match="after_step: expected a call of combine"):
        objective.after_step(make_inputs().batch())
    with pytest.raises(ValueError, match="gradients: expected a gradient and a value of label, distillation"):
        objective.combine({})
    DTOKD(variant="exact").after_step(make_inputs().batch())


# Layer features.


@pytest.mark.parametrize("sizes", [(3, 5), (5, 3), (4, 4)])
def test_projectors_stay_orthogonal_under_an_optimiser_with_weight_decay(sizes):
    torch.manual_seed(0)
    (projector,) = layer_projectors([sizes])
    optimiser = torch.optim.AdamW(projector.parameters(), lr=0.1, weight_decay=0.1)
    target = torch.randn(sizes[1])
    for _ in range(10):
        optimiser.zero_grad()
        (projector(torch.ones(sizes[0])) - target).square().sum().backward()
        optimiser.step()
    weight = projector.weight.detach()
    gram = weight @ weight.T if sizes[1] < sizes[0] else weight.T @ weight
    torch.testing.assert_close(gram, torch.eye(min(sizes)), atol=1e-5, rtol=0)
    assert projector.bias is None


def test_features_join_as_their_own_objective_or_within_distillation():
    batch = make_inputs().batch()
    torch.manual_seed(0)
    own = DTOKD(layer_features="own-objective")
    losses = own.losses(batch)
    assert own.objective_names == tuple(losses) == ("label", "distillation", "features")
    within = DTOKD(layer_features="with-distillation", layer_sizes=((3, 5), (4, 4)))
    within.modules()["projectors"].double().load_state_dict(own.modules()["projectors"].state_dict())
    joined = within.losses(batch)
    assert within.objective_names == tuple(joined) == ("label", "distillation")
    torch.testing.assert_close(joined["distillation"], losses["distillation"] + losses["features"])


@pytest.mark.parametrize("sizes", [None, ((3, 5), (4, 4))])
def test_state_restores_the_projectors_whether_or_not_they_exist(sizes):
    used = DTOKD(layer_features="own-objective")
    with pytest.raises(RuntimeError, match="layer_sizes"):
        used.modules()
    used.losses(make_inputs(dtype=torch.float32).batch())
    fresh = DTOKD(layer_features="own-objective", layer_sizes=sizes)
    fresh.load_state_dict(used.state_dict())
    for before, after in zip(used.modules()["projectors"], fresh.modules()["projectors"], strict=True):
        assert torch.equal(before.weight, after.weight)


def test_features_that_do_not_fit_are_refused():
    inputs = make_inputs()
    objective = DTOKD(layer_features="own-objective")
    with pytest.raises(ValueError, match="teacher_layer_features: expected one for each of 2 layer_features, got 1"):
        objective.losses(replace(inputs, teacher_layers=inputs.teacher_layers[:1]).batch())
    with pytest.raises(ValueError, match=r"layer_features: expected pooled features \(12, D\) of both"):
        objective.losses(replace(inputs, layers=tuple(layer[1:] for layer in inputs.layers)).batch())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"variant": "famo"}, "variant: expected one of amortised, exact, literal, got 'famo'"),
        (
            {"layer_features": "all"},
            "layer_features: expected one of none, own-objective",
        ),
        ({"temperature": -1.0}, "temperature: expected a positive finite number"),
        ({"weight_lr": -1.0}, "weight_lr: expected a nonnegative finite weight"),
        ({"weight_decay": -1.0}, "weight_decay: expected a nonnegative finite weight"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        create("dto-kd", **settings)


def test_a_state_of_other_objectives_is_refused():
    with pytest.raises(ValueError, match="state: expected the balance of label, distillation, got nothing"):
        DTOKD().load_state_dict({})
    with pytest.raises(ValueError, match="state: expected the balance of label, distillation, features"):
        DTOKD(layer_features="own-objective").load_state_dict(DTOKD().state_dict())
