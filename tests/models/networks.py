"""Small networks of every built-in kind, with inputs that fit them."""

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec

TINY_BERT = {"layers": 2, "hidden_size": 16, "heads": 2, "vocab_size": 50, "max_positions": 32}

KINDS = {
    "mlp": ("builtin:mlp", {"input_size": 12, "hidden": [8, 6]}),
    "resnet": ("builtin:resnet8", {}),
    "bert": ("builtin:bert", TINY_BERT),
    "bert-mean": ("builtin:bert", {**TINY_BERT, "pooling": "mean"}),
}


def build(kind, num_classes=5, **settings):
    name, options = KINDS[kind]
    return build_model(ModelSpec(name, num_classes=num_classes, options=options, **settings))


def save(model, path, **changes):
    """A file with the weights of a network; None leaves a tensor out."""
    state = {name: value.contiguous() for name, value in model.state_dict().items()} | changes
    save_file({name: value for name, value in state.items() if value is not None}, path)
    return path


def plain_state(model):
    """The weights as tensors that share no memory with the network."""
    return {name: value.clone() for name, value in model.state_dict().items()}


def inputs_for(kind, rows=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if kind == "mlp":
        return torch.randn(rows, 12, generator=generator)
    if kind == "resnet":
        return torch.randn(rows, 3, 32, 32, generator=generator)
    return tokens(rows, 10, 50, generator)


def tokens(rows, length, vocabulary, generator=None):
    """Random ids under masks of every length from 1 up, in turn."""
    ids = torch.randint(vocabulary, (rows, length), generator=generator)
    lengths = 1 + torch.arange(rows) * (length // rows)
    return {"input_ids": ids, "attention_mask": (torch.arange(length) < lengths.unsqueeze(-1)).long()}


def real_data():
    """The folder of published data and weights; a test without it is skipped, because it has nothing to look at."""
    if "TPKD_DATA" not in os.environ:
        pytest.skip("TPKD_DATA is not set: no published data or weights at hand")
    return Path(os.environ["TPKD_DATA"])
