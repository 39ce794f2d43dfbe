"""A small network with a second head, on which the objectives that act on parameters are differentiated by hand."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from objectives import reference
from objectives.cases import SEED, Case, Inputs, build_networks, make_inputs
from tpkd.objectives import Batch, Objective

STEP = 1e-6
SAMPLED = 40  # coordinates of the objective's own networks that are differentiated


class TwoHeads:
    """features = tanh(x W), logits = features V: one parameter vector that both heads share."""

    def __init__(self, inputs: Inputs, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.inputs = inputs
        self.x = torch.randn(len(inputs.labels), 3, generator=generator, dtype=torch.float64)
        self.w = torch.randn(3, 4, generator=generator, dtype=torch.float64).requires_grad_()
        self.v = torch.randn(4, 5, generator=generator, dtype=torch.float64).requires_grad_()

    @property
    def parameters(self) -> list[Tensor]:
        return [self.w, self.v]

    def batch(self) -> Batch:
        hidden = self.x @ self.w
        features = hidden.tanh()
        outputs = replace(self.inputs, student=features @ self.v, features=features, layers=(hidden[:, :3], features))
        return outputs.batch()


def losses(objective: Objective, network: TwoHeads) -> dict[str, Tensor]:
    torch.manual_seed(SEED)  # the same dropout mask in every evaluation
    return objective.losses(network.batch())


def analytic(objective: Objective, network: TwoHeads, parameters: list[Tensor]) -> tuple[dict, dict]:
    """Every loss and its flattened gradient, by autograd."""
    found = losses(objective, network)
    gradients = {}
    for name, loss in found.items():
        pieces = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        filled = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, pieces, strict=True)]
        gradients[name] = torch.cat([g.reshape(-1) for g in filled])
    return {name: loss.detach() for name, loss in found.items()}, gradients


def numeric(objective: Objective, network: TwoHeads, parameters: list[Tensor], sample: list[int]) -> dict[str, Tensor]:
    """Central differences of every loss at the sampled coordinates."""
    columns: dict[str, list[float]] = {}
    places = [(parameter, i) for parameter in parameters for i in range(parameter.numel())]
    for index in sample:
        parameter, i = places[index]
        flat = parameter.data.view(-1)
        start = flat[i].item()
        sides = []
        for side in (STEP, -STEP):
            flat[i] = start + side
            with torch.no_grad():
                sides.append({name: loss.item() for name, loss in losses(objective, network).items()})
        flat[i] = start
        for name in sides[0]:
            columns.setdefault(name, []).append((sides[0][name] - sides[1][name]) / (2 * STEP))
    return {name: torch.tensor(column, dtype=torch.float64) for name, column in columns.items()}


def expected_step(objective: Objective, values: dict[str, Tensor], gradients: dict[str, Tensor]) -> Tensor:
    """The combination of per-loss gradients, by its definition in NumPy."""
    stacked = np.stack([gradient.numpy() for gradient in gradients.values()])
    if objective.name == "dhkd":
        label, distillation = stacked
        inner = float(label @ distillation)
        if objective.align and inner < 0:
            distillation = distillation - inner / float(label @ label) * label
        return torch.from_numpy(label + distillation)
    levels = np.array([value.item() for value in values.values()])
    if objective.variant == "exact":
        scaled = stacked / levels[:, None]
        return torch.from_numpy(reference.min_norm(scaled) @ scaled)
    weights = objective.weights.double().numpy() / levels
    if objective.variant == "amortised" and objective.normalise:
        weights = weights / weights.sum()
    return torch.from_numpy(weights @ stacked)


def check_network_gradient(case: Case) -> None:
    """Each loss's parameter gradient against central differences, and their combination against its definition."""
    conflicts = 0
    for seed in range(4):
        objective = case.objective()
        network = TwoHeads(make_inputs(count=6, seed=seed), seed)
        if case.name == "dto-kd" and objective.variant != "exact":
            state = objective.state_dict()
            start = [0.8, 0.2] if objective.variant == "literal" else [0.4, -0.3]
            objective.load_state_dict(state | {"balance.weights": torch.tensor(start, dtype=torch.float64)})
        build_networks(objective, network.batch())
        own = [p for module in objective.modules().values() for p in module.parameters()]
        parameters = network.parameters + own
        values, gradients = analytic(objective, network, parameters)
        shared = sum(p.numel() for p in network.parameters)
        rest = torch.randperm(sum(p.numel() for p in own), generator=torch.Generator().manual_seed(seed))
        sample = [*range(shared), *(shared + rest[:SAMPLED]).tolist()]
        for name, difference in numeric(objective, network, parameters, sample).items():
            error = (gradients[name][sample] - difference).abs().max().item()
            assert error <= 1e-6, f"gradient of {name}: off by {error:.3g}"  # rounding of the loss over the step
        conflicts += bool(torch.stack(list(gradients.values()))[:2].prod(0).sum() < 0)
        step = objective.combine(gradients, values)
        expected = expected_step(objective, values, gradients)
        error = ((step - expected).abs().max() / expected.abs().max()).item()
        assert error <= 1e-6, f"combined step: off by {error:.3g} of its size"  # the min-norm solver's own accuracy
    if case.name == "dhkd":
        assert 0 < conflicts < 4, "aligned and plain steps must both occur"
