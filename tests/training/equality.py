"""Whether two runs ended alike, bit for bit: weights, optimiser, generators, metrics; wall-clock aside."""

import json

import torch

from tpkd.training.checkpoint import Checkpoints
from tpkd.training.directory import read_result

CLOCK = ("seconds", "metrics_bytes", "metrics_sha256")


def metrics_of(directory):
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    return [{name: value for name, value in json.loads(line).items() if name not in CLOCK} for line in lines]


def assert_same_run(first, second):
    results = [read_result(directory).to_dict() for directory in (first, second)]
    for result in results:
        assert result.pop("seconds") >= 0
    assert results[0] == results[1]
    assert metrics_of(first) == metrics_of(second)
    assert (first / "student.safetensors").read_bytes() == (second / "student.safetensors").read_bytes()
    assert (first / "test-logits.safetensors").read_bytes() == (second / "test-logits.safetensors").read_bytes()
    one, other = (Checkpoints(directory / "checkpoints", keep=2).load() for directory in (first, second))
    assert one.step == other.step
    assert one.groups.keys() == other.groups.keys()
    for group, tensors in one.groups.items():
        assert tensors.keys() == other.groups[group].keys()
        for name, tensor in tensors.items():
            assert torch.equal(tensor, other.groups[group][name]), (group, name)
    values = [{name: value for name, value in each.values.items() if name not in CLOCK} for each in (one, other)]
    assert values[0] == values[1]
