"""A batch cut into pieces, and moved to where the network is."""

from collections.abc import Iterator
from itertools import pairwise

import torch

from tpkd.data.batches import ModelInputs, SampleBatch


def to_device(inputs: ModelInputs, device: torch.device) -> ModelInputs:
    """Inputs where the network is."""
    if isinstance(inputs, dict):
        return {name: value.to(device, non_blocking=True) for name, value in inputs.items()}
    return inputs.to(device, non_blocking=True)


def sort_by_length(samples: SampleBatch) -> SampleBatch:
    """Texts from short to long: pieces of the batch then hold less padding, and their sum is the same."""
    if not isinstance(samples.inputs, dict):
        return samples
    order = samples.inputs["attention_mask"].sum(-1).argsort(stable=True)
    return SampleBatch(
        inputs={name: value[order] for name, value in samples.inputs.items()},
        labels=samples.labels[order],
        sample_ids=samples.sample_ids[order],
        view_ids=samples.view_ids[order],
        epochs=samples.epochs[order],
    )


def trim_padding(inputs: ModelInputs) -> ModelInputs:
    """Texts without the columns that all of them leave empty."""
    if not isinstance(inputs, dict):
        return inputs
    longest = int(inputs["attention_mask"].sum(-1).max())
    return {name: value[:, :longest] for name, value in inputs.items()}


def split_inputs(inputs: ModelInputs, bounds: list[int]) -> Iterator[ModelInputs]:
    """Inputs cut at the bounds, the first of which is 0 and the last their length."""
    for start, stop in pairwise(bounds):
        if isinstance(inputs, dict):
            yield {name: value[start:stop] for name, value in inputs.items()}
        else:
            yield inputs[start:stop]
