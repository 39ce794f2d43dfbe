import numpy as np
import pytest
import torch
from torch import nn

from tpkd.config.optimizers import AdamWConfig, AdamWeightDecayConfig, SGDConfig
from tpkd.errors import InputError
from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec
from tpkd.training.optimizer import (
    AdamWeightDecay,
    build_optimizer,
    layer_scales,
    set_rate,
    split_decay,
    split_one_dimensional,
)

STEPS = 25
KINDS = (SGDConfig, AdamWConfig, AdamWeightDecayConfig)
BERT = ModelSpec("builtin:bert", num_classes=5, options={"layers": 3, "hidden_size": 16, "heads": 2})


def numpy_adam(weights, gradients, rates, decays, b1=0.9, b2=0.999, eps=1e-6):
    """The published update, one number after the other."""
    weights = [w.copy() for w in weights]
    m, v = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    for step, rate in enumerate(rates):
        for i, w in enumerate(weights):
            g = gradients[step][i]
            for place in np.ndindex(w.shape):
                m[i][place] = b1 * m[i][place] + (1 - b1) * g[place]
                v[i][place] = b2 * v[i][place] + (1 - b2) * g[place] ** 2
                update = m[i][place] / (np.sqrt(v[i][place]) + eps) + decays[i] * w[place]
                w[place] = w[place] - rate * update
    return weights


def test_adam_weight_decay_is_the_published_update_without_bias_correction():
    generator = torch.Generator().manual_seed(0)
    shapes, decays = [(3, 2), (4,)], [0.01, 0.0]
    start = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    gradients = [
        [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes] for _ in range(STEPS)
    ]
    rates = [0.1 * step / STEPS for step in range(STEPS)]
    parameters = [nn.Parameter(weight.clone()) for weight in start]
    groups = [
        {"params": [parameter], "weight_decay": decay} for parameter, decay in zip(parameters, decays, strict=True)
    ]
    optimizer = AdamWeightDecay(groups, lr=0.1)
    for rate, now in zip(rates, gradients, strict=True):
        set_rate(optimizer, rate)
        for parameter, gradient in zip(parameters, now, strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()
    expected = numpy_adam([w.numpy() for w in start], [[g.numpy() for g in now] for now in gradients], rates, decays)
    for parameter, value in zip(parameters, expected, strict=True):
        # Twenty-five steps of a few roundings each.
        np.testing.assert_allclose(parameter.detach().numpy(), value, rtol=1e-12, atol=1e-13)


def test_adam_weight_decay_differs_from_adamw_by_its_missing_bias_correction():
    ours, theirs = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    optimizers = AdamWeightDecay([ours], lr=1.0, weight_decay=0), torch.optim.AdamW([theirs], lr=1.0, eps=1e-6)
    for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
        parameter.grad = torch.ones(1)
        optimizer.step()
    assert theirs.item() == pytest.approx(-1, abs=1e-4)
    assert ours.item() == pytest.approx(-(1 - 0.9) / np.sqrt(1 - 0.999), rel=1e-3)


def test_a_parameter_without_gradient_does_not_move_and_does_not_decay():
    parameter = nn.Parameter(torch.ones(2))
    AdamWeightDecay([parameter], lr=1.0).step()
    assert torch.equal(parameter.data, torch.ones(2))


def test_bias_and_layer_norm_do_not_decay():
    bert = build_model(ModelSpec("builtin:bert", num_classes=5, options={"layers": 1, "hidden_size": 16, "heads": 2}))
    decayed, free = split_decay(bert)
    names = {id(parameter): name for name, parameter in bert.named_parameters()}
    assert {names[id(p)] for p in free} == {n for n in names.values() if n.endswith("bias") or "LayerNorm" in n}
    assert len(decayed) + len(free) == len(names)
    assert len({id(p) for p in decayed + free}) == len(names)


def test_shared_parameters_are_optimised_once():
    layer = nn.Linear(2, 2)
    decayed, free = split_decay(nn.ModuleDict({"a": layer, "b": nn.Sequential(layer)}))
    assert (len(decayed), len(free)) == (1, 1)


def test_frozen_parameters_are_left_out():
    layer = nn.Linear(2, 2)
    layer.weight.requires_grad_(False)
    for kind in KINDS:
        optimizer = build_optimizer(kind(learning_rate=0.1), layer)
        assert [p for group in optimizer.param_groups for p in group["params"]] == [layer.bias]


def test_sgd_has_the_papers_momentum_and_decays_everything():
    optimizer = build_optimizer(SGDConfig(learning_rate=1e-4, weight_decay=1e-3), nn.Linear(2, 2))
    (group,) = optimizer.param_groups
    assert (group["lr"], group["momentum"], group["weight_decay"], len(group["params"])) == (1e-4, 0.9, 1e-3, 2)
    assert not group["nesterov"]
    assert group["dampening"] == 0


def test_a_closure_is_refused():
    with pytest.raises(ValueError, match="closure"):
        AdamWeightDecay([nn.Parameter(torch.ones(1))], lr=0.1).step(lambda: 0.0)


def trained(optimizer, parameters, steps=5):
    """Parameters after some steps with gradients that depend on nothing but their place."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()
    return [parameter.detach().clone() for parameter in parameters]


def twins():
    torch.manual_seed(0)
    first = nn.Sequential(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.LayerNorm(3), nn.Linear(3, 4))
    second = nn.Sequential(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.LayerNorm(3), nn.Linear(3, 4))
    second.load_state_dict(first.state_dict())
    return first, second


def test_adamw_is_torchs_with_decay_on_matrices_alone():
    ours, theirs = twins()
    config = AdamWConfig(learning_rate=0.1, betas=(0.8, 0.9), eps=1e-4, weight_decay=0.5)
    decay = [{"params": [p], "weight_decay": 0.5 if p.ndim > 1 else 0.0} for p in theirs.parameters()]
    expected = torch.optim.AdamW(decay, lr=0.1, betas=(0.8, 0.9), eps=1e-4)
    found = trained(build_optimizer(config, ours), list(ours.parameters()))
    for one, other in zip(found, trained(expected, list(theirs.parameters())), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_nesterov_is_torchs():
    ours, theirs = twins()
    config = SGDConfig(learning_rate=0.1, momentum=0.7, nesterov=True, weight_decay=0.1)
    expected = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.7, nesterov=True, weight_decay=0.1)
    found = trained(build_optimizer(config, ours), list(ours.parameters()))
    for one, other in zip(found, trained(expected, list(theirs.parameters())), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_adamw_exempts_what_transformers_does_for_bert():
    from transformers import Trainer

    bert = build_model(BERT)
    decayed, free = split_one_dimensional(bert)
    names = {parameter: name for name, parameter in bert.named_parameters()}
    assert {names[p] for p in decayed} == set(Trainer.get_decay_parameter_names(None, bert))
    assert len(decayed) + len(free) == len(names)


def test_adamw_exempts_biases_of_more_dimensions_and_what_a_network_lists():
    class Vision(nn.Module):
        def __init__(self):
            super().__init__()
            self.pos_embed = nn.Parameter(torch.zeros(1, 4, 2))
            self.table_bias = nn.Parameter(torch.zeros(4, 2))
            self.inner = Inner()

        def no_weight_decay(self):
            return {"pos_embed"}

    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.kernel = nn.Parameter(torch.zeros(2, 2))

        def no_weight_decay(self):
            return {"kernel"}

    network = Vision()
    decayed, free = split_one_dimensional(nn.ModuleDict({"student": network}))
    assert {*map(id, decayed)} == {id(network.inner.kernel)}
    assert {*map(id, free)} == {id(network.pos_embed), id(network.table_bias)}


@pytest.mark.parametrize("kind", KINDS)
def test_each_layer_has_the_power_of_the_decay_that_is_its_distance_from_the_head(kind):
    """By hand: embeddings, three layers, pooler and head."""
    bert = build_model(BERT)
    optimizer = build_optimizer(kind(learning_rate=0.1), bert, layer_scales(bert, 0.5))
    rates = {parameter: group["lr_scale"] for group in optimizer.param_groups for parameter in group["params"]}
    assert len(rates) == len(list(bert.parameters()))
    parts = {"embeddings": 0.0625, "layer.0.": 0.125, "layer.1.": 0.25, "layer.2.": 0.5, "pooler": 1.0, "head": 1.0}
    for name, parameter in bert.named_parameters():
        (expected,) = (scale for part, scale in parts.items() if part in name)
        assert rates[parameter] == expected, name
    set_rate(optimizer, 0.2)
    for group in optimizer.param_groups:
        assert group["lr"] == 0.2 * group["lr_scale"]


def test_a_network_that_is_all_head_is_refused(monkeypatch):
    bert = build_model(BERT)
    monkeypatch.setattr(bert, "parameter_depths", lambda: {name: 0 for name, _ in bert.named_parameters()})
    with pytest.raises(InputError, match="cannot be told apart"):
        layer_scales(bert, 0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_layer_decay_changes_no_weight_decay(kind):
    bert = build_model(BERT)
    config = kind(learning_rate=0.1, weight_decay=0.3)
    decays = [
        {
            p: group["weight_decay"]
            for group in build_optimizer(config, bert, scales).param_groups
            for p in group["params"]
        }
        for scales in (None, layer_scales(bert, 0.5))
    ]
    assert decays[0] == decays[1]


def test_parameters_beside_the_student_have_the_rate_of_the_head():
    student, own = build_model(BERT), nn.Linear(2, 2)
    module = nn.ModuleDict({"student": student, "own": own})
    optimizer = build_optimizer(SGDConfig(learning_rate=0.1), module, layer_scales(student, 0.5))
    (group,) = [group for group in optimizer.param_groups if any(p is own.weight for p in group["params"])]
    assert group["lr_scale"] == 1.0


def test_a_layer_moves_by_its_own_rate():
    """A step of plain SGD is rate times gradient, and the gradient here is 1."""
    student = build_model(ModelSpec("builtin:mlp", 3, options={"input_size": 2, "hidden": [4, 4]}))
    optimizer = build_optimizer(SGDConfig(learning_rate=1.0, momentum=0), student, layer_scales(student, 0.5))
    before = {name: parameter.detach().clone() for name, parameter in student.named_parameters()}
    for parameter in student.parameters():
        parameter.grad = torch.ones_like(parameter)
    set_rate(optimizer, 0.25)
    optimizer.step()
    for name, scale in {"layers.0.weight": 0.25, "layers.1.weight": 0.5, "fc.weight": 1.0}.items():
        moved = before[name] - student.get_parameter(name)
        torch.testing.assert_close(moved, torch.full_like(moved, 0.25 * scale))


@pytest.mark.parametrize("kind", KINDS)
def test_groups_of_a_run_without_layer_decay_name_no_scale(kind):
    """Checkpoints of such runs keep their bytes."""
    optimizer = build_optimizer(kind(learning_rate=0.1), nn.Linear(2, 2), layer_scales(build_model(BERT), None))
    assert len(optimizer.param_groups) == (1 if kind is SGDConfig else 2)
    assert not any("lr_scale" in group for group in optimizer.param_groups)
    set_rate(optimizer, 0.3)
    assert {group["lr"] for group in optimizer.param_groups} == {0.3}
