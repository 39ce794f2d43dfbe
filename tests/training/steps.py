"""One step of a run under any split of its batch, and what it leaves: gradients, weights and the objective's state."""

import dataclasses

import torch

from tpkd.data import SampleBatch
from tpkd.training.run import assemble, start_accelerator
from tpkd.training.step import take_step

IGNORED_SHARES = (0.0, 0.3, 0.9, 1.0)


def masked(samples: SampleBatch, share: float, *, first: int = 0) -> SampleBatch:
    """The samples with a share of the labels of the whole batch ignored; `first` is where these stand in it."""
    order = torch.randperm(64, generator=torch.Generator().manual_seed(5))
    ignored = torch.isin(torch.arange(first, first + len(samples)), order[: round(64 * share)])
    inputs = samples.inputs.to(torch.get_default_dtype())
    return dataclasses.replace(samples, inputs=inputs, labels=torch.where(ignored, -100, samples.labels))


def step_once(config, directory, share):
    """Gradients of the first step and the objective's state after it, by name."""
    run = assemble(config, start_accelerator(config), directory)
    samples = run.batches[0]
    first = 64 * run.accelerator.process_index // run.accelerator.num_processes
    outcome = take_step(run, 1, masked(samples, share, first=first))
    module = run.accelerator.unwrap_model(run.module)
    gradients = {name: parameter.grad.clone() for name, parameter in module.named_parameters()}
    state = {f"state.{name}": torch.as_tensor(value) for name, value in run.objective.state_dict().items()}
    losses = {f"loss.{name}": torch.as_tensor(value) for name, value in outcome.losses.items()}
    return gradients | {name: value.clone() for name, value in (state | losses).items()}


def largest_difference(first, second):
    assert first.keys() == second.keys()
    return max((first[name].double() - second[name].double()).abs().max().item() for name in first)
