"""One step of a run under any split of its batch, and what it leaves: gradients, weights and the objective's state."""

import copy
import dataclasses

import torch

from tpkd.data.batches import SampleBatch
from tpkd.training.run import assemble, start_accelerator
from tpkd.training.step import take_step

IGNORED_SHARES = (0.0, 0.3, 0.9, 1.0)


def masked(samples: SampleBatch, share: float, *, first: int = 0) -> SampleBatch:
    """The samples with a share of the labels of the whole batch ignored; `first` is where these stand in it."""
    order = torch.randperm(64, generator=torch.Generator().manual_seed(5))
    ignored = torch.isin(torch.arange(first, first + len(samples)), order[: round(64 * share)])
    inputs = samples.inputs.to(torch.get_default_dtype())
    return dataclasses.replace(samples, inputs=inputs, labels=torch.where(ignored, -100, samples.labels))


def first_steps(config, directory):
    """For each share of ignored labels: gradients of the first step, its losses, the objective's state after it."""
    run = assemble(config, start_accelerator(config), directory)
    samples = run.batches[0]
    first = 64 * run.accelerator.process_index // run.accelerator.num_processes
    module = run.accelerator.unwrap_model(run.module)
    weights, state = copy.deepcopy(module.state_dict()), copy.deepcopy(run.objective.state_dict())
    found = {}
    for share in IGNORED_SHARES:
        module.load_state_dict(weights)
        run.objective.load_state_dict(state)
        outcome = take_step(run, 1, masked(samples, share, first=first))
        values = {
            **{name: parameter.grad for name, parameter in module.named_parameters()},
            **{f"state.{name}": torch.as_tensor(value) for name, value in run.objective.state_dict().items()},
            **{f"loss.{name}": torch.as_tensor(value) for name, value in outcome.losses.items()},
        }
        found |= {f"{share}/{name}": value.detach().clone().contiguous() for name, value in values.items()}
    return found


def assert_close(found, expected, tolerance):
    """Every number within the tolerance, times the largest of its step where that is above one."""
    assert found.keys() == expected.keys()
    scales = {}
    for name, value in expected.items():
        case = name.rsplit("/", 1)[0]
        scales[case] = max(scales.get(case, 1.0), value.abs().max().item())
    for name, value in expected.items():
        difference = (found[name].double() - value.double()).abs().max().item()
        assert difference <= tolerance * scales[name.rsplit("/", 1)[0]], name
