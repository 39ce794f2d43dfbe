"""A network is built from its recipe without the weights it started from."""

import pytest
import torch

from student.runs import TINY_BERT, tiny_encoder
from tpkd.data.views import ViewRecipe
from tpkd.errors import InputError
from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec
from tpkd.student.network import build_network, build_preparation, tokenizer_source
from tpkd.student.recipe import FORMAT, StudentRecipe


def recipe(model, options, classes=("a", "b", "c")):
    return StudentRecipe(FORMAT, model, options, False, classes, ViewRecipe(), 8, "longest", "0" * 64)


def shapes(module):
    return {name: tuple(value.shape) for name, value in module.state_dict().items()}


@pytest.mark.parametrize(
    ("model", "options"), [("builtin:mlp", {"input_size": 3}), ("builtin:resnet8", {}), ("builtin:bert", TINY_BERT)]
)
def test_a_network_has_the_tensors_of_the_run(model, options):
    assert shapes(build_network(recipe(model, options))) == shapes(build_model(ModelSpec(model, 3, options)))


@pytest.mark.parametrize("pooling", ["pooler", "mean"])
def test_an_encoder_has_the_tensors_of_the_run(tmp_path, pooling):
    encoder = tiny_encoder(tmp_path)
    options = {"pooling": pooling}
    expected = shapes(build_model(ModelSpec(f"hf:{encoder}", 3, options, head="random")))
    (encoder / "model.safetensors").unlink()
    built = build_network(recipe(f"hf:{encoder}", options))
    assert shapes(built) == expected
    assert {value.dtype for value in built.parameters()} == {torch.float32}


def test_an_encoder_without_a_pooler_is_refused_where_the_run_had_one(tmp_path):
    encoder = tiny_encoder(tmp_path, "distilbert")
    with pytest.raises(InputError, match="expected a network with a pooler"):
        build_network(recipe(f"hf:{encoder}", {}))


def test_an_exported_copy_of_tokenizer_and_configuration_is_preferred(tmp_path):
    tiny_encoder(tmp_path / "network")
    gone = recipe("hf:/no/such/folder", {"tokenizer": "/gone/too"})
    assert tokenizer_source(gone, tmp_path) == str(tmp_path / "network")
    assert build_network(gone, tmp_path).num_classes == 3
    assert build_preparation(gone, tmp_path).tokenize(["pay my"])["input_ids"].shape == (1, 4)
    with pytest.raises(InputError, match="/no/such/folder: cannot be read"):
        build_network(gone)


def test_hashed_words_need_no_file():
    assert tokenizer_source(recipe("builtin:bert", TINY_BERT), None) is None
