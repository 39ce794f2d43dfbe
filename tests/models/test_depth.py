"""How far parameters are from the head, by the blocks of a network."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tpkd.errors import InputError
from tpkd.models.depth import block_depths
from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec


def depths_of(name, **options):
    model = build_model(ModelSpec(name, 5, options=options))
    depths = model.parameter_depths()
    assert list(depths) == [name for name, _ in model.named_parameters()]
    return depths


def test_a_resnet_has_its_stem_its_blocks_and_its_head():
    depths = depths_of("builtin:resnet14")
    blocks = [f"layer{stage}.{block}." for stage in (1, 2, 3) for block in (0, 1)]
    expected = {"conv1.": 7, "bn1.": 7, **{block: 6 - place for place, block in enumerate(blocks)}, "fc.": 0}
    for name, depth in depths.items():
        (found,) = (number for start, number in expected.items() if name.startswith(start))
        assert depth == found, name


def test_an_mlp_counts_its_layers():
    depths = depths_of("builtin:mlp", input_size=4, hidden=[3, 3, 3])
    assert {name: depth for name, depth in depths.items() if name.endswith("weight")} == {
        "layers.0.weight": 3,
        "layers.1.weight": 2,
        "layers.2.weight": 1,
        "fc.weight": 0,
    }


def test_a_network_of_one_layer_has_none_to_tell_apart():
    with pytest.raises(InputError, match="cannot be told apart"):
        depths_of("builtin:mlp", input_size=4, hidden=[])


class Unordered(nn.Module):
    """An embedding and a head where nobody expects them, and a part between two lists of blocks."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.token = nn.Parameter(torch.zeros(2))
        self.early = nn.ModuleList([nn.Linear(2, 2)])
        self.between = nn.Linear(2, 2)
        self.late = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Sequential(nn.Linear(2, 2)))
        self.positions = nn.Embedding(2, 2)
        self.norm = nn.LayerNorm(2)


def test_what_is_not_in_a_block_belongs_to_its_neighbour():
    network = Unordered()
    depths = block_depths(network, [f"fc.{name}" for name in ("weight", "bias")])
    assert {name: depth for name, depth in depths.items() if not name.endswith("bias")} == {
        "token": 4,
        "fc.weight": 0,
        "early.0.weight": 3,
        "between.weight": 3,
        "late.0.weight": 2,
        "late.2.0.weight": 1,
        "positions.weight": 4,
        "norm.weight": 0,
    }


def save_hf(directory, config):
    from transformers import AutoModel

    AutoModel.from_config(config).save_pretrained(directory)
    return f"hf:{Path(directory)}"


SIZES = {"vocab_size": 20, "max_position_embeddings": 8}


@pytest.mark.parametrize("kind", ["distilbert", "electra", "deberta-v2"])
def test_encoders_of_a_folder_count_their_layers(tmp_path, kind):
    import transformers

    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    if kind == "distilbert":
        sizes = {"dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 8}
    if kind == "deberta-v2":
        sizes |= {"relative_attention": True, "max_relative_positions": 4, "position_buckets": 2}
    config = transformers.AutoConfig.for_model(kind, **SIZES, **sizes)
    depths = depths_of(save_hf(tmp_path, config), pooling="mean")
    assert set(depths.values()) == {0, 1, 2, 3}
    for name, depth in depths.items():
        if "embeddings" in name and ".layer." not in name:
            assert depth == 3, name
        elif ".layer." in name:
            assert depth == 2 - int(name.split(".layer.")[1].split(".")[0]), name
    assert (depths["head.weight"], depths["head.bias"]) == (0, 0)


def test_an_encoder_that_shares_its_layers_is_refused(tmp_path):
    from transformers import AlbertConfig

    config = AlbertConfig(
        **SIZES, embedding_size=8, hidden_size=8, num_hidden_layers=4, num_attention_heads=2, intermediate_size=8
    )
    name = save_hf(tmp_path, config)
    with pytest.raises(InputError, match="expected 4 layers with weights of their own in AlbertModel, found 1"):
        depths_of(name, pooling="mean")
