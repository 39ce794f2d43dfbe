import numpy as np
import pytest
import torch
from torch import nn

from tpkd.config.schema import AdamWeightDecayConfig, SGDConfig
from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec
from tpkd.training.optimizer import AdamWeightDecay, build_optimizer, set_rate, split_decay

STEPS = 25


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
    for config in (AdamWeightDecayConfig(learning_rate=0.1), SGDConfig(learning_rate=0.1)):
        optimizer = build_optimizer(config, layer)
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
