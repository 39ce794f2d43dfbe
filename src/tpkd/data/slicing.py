"""Move batches to a device, sort them by length, and trim their padding."""

import torch

from tpkd.data.batches import ModelInputs, SampleBatch


def to_device(inputs: ModelInputs, device: torch.device) -> ModelInputs:
    """Inputs on a device."""
    if isinstance(inputs, dict):
        return {name: value.to(device, non_blocking=True) for name, value in inputs.items()}
    return inputs.to(device, non_blocking=True)


def sort_by_length(samples: SampleBatch) -> SampleBatch:
    """Sort texts by length: slices of the batch then need less padding, and the total is the same."""
    if not isinstance(samples.inputs, dict):
        return samples
    return samples.take(samples.inputs["attention_mask"].sum(-1).argsort(stable=True))


def trim_padding(inputs: ModelInputs) -> ModelInputs:
    """Drop the columns that are padding in every row."""
    if not isinstance(inputs, dict):
        return inputs
    longest = int(inputs["attention_mask"].sum(-1).max())
    return {name: value[:, :longest] for name, value in inputs.items()}
