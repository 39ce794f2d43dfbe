import subprocess
import sys

import pytest
import torch

from models.networks import KINDS, build
from tpkd.errors import InputError
from tpkd.models.registry import build_model, encoder_for
from tpkd.models.spec import ModelSpec
from tpkd.models.weights import weights_fingerprint


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head", ["own", "random"])
def test_a_model_is_a_pure_function_of_its_arguments(kind, head):
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = build(kind, seed=7, head=head)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    assert weights_fingerprint(build(kind, seed=7, head=head)) == weights_fingerprint(first)
    assert weights_fingerprint(build(kind, seed=8, head=head)) != weights_fingerprint(first)


@pytest.mark.parametrize("kind", KINDS)
def test_models_are_built_in_float32(kind):
    assert {parameter.dtype for parameter in build(kind).parameters()} == {torch.float32}


@pytest.mark.parametrize("kind", KINDS)
def test_the_random_head_is_the_shared_one(kind):
    model = build(kind, head="random", seed=3)
    assert model.classifier.bias.count_nonzero() == 0
    assert model.classifier.weight.abs().max() <= 0.04


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("mlp", {}, "model 'mlp': unknown, expected builtin:mlp, builtin:resnet8"),
        ("builtin:vgg", {}, "model 'builtin:vgg': unknown"),
        ("hf:", {}, "model 'hf:': unknown"),
        ("timm:", {}, "model 'timm:': unknown"),
        ("os:system", {}, "model 'os:system': unknown"),
        ("builtin:mlp", {"num_classes": 1}, "num_classes: expected at least 2, found 1"),
        ("builtin:mlp", {"head": "probe"}, "head: expected one of own, random, found 'probe'"),
        ("builtin:resnet8", {"options": {"depth": 3}}, "depth: unknown option, expected no option"),
    ],
)
def test_bad_requests_are_one_line(name, settings, message):
    with pytest.raises(InputError, match=message) as error:
        build_model(ModelSpec(name, **{"num_classes": 3, **settings}))
    assert "\n" not in str(error.value)


def test_only_text_models_have_an_encoding():
    with pytest.raises(InputError, match="model 'builtin:resnet8': reads no text"):
        encoder_for("builtin:resnet8")
    with pytest.raises(InputError, match="max_length: expected at most max_positions 512, found 513"):
        encoder_for("builtin:bert", max_length=513)


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_models_loads_none_of_the_heavy_libraries():
    code = """
import sys
from tpkd.models.registry import ModelSpec, build_model, encoder_for
build_model(ModelSpec("builtin:resnet8", num_classes=10))
encoder_for("builtin:bert")
print(sorted({"transformers", "timm", "sklearn", "scipy", "safetensors"} & set(sys.modules)))
"""
    assert run(code).strip() == "[]"


@pytest.mark.parametrize(
    ("library", "extra", "name"),
    [("transformers", "text", "builtin:bert"), ("transformers", "text", "hf:x"), ("timm", "vision", "timm:pit_b_224")],
)
def test_a_missing_library_is_one_line_that_names_the_extra(library, extra, name, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=rf"^{library} is not installed: pip install 'tpkd\[{extra}\]'$"):
        build_model(ModelSpec(name, num_classes=3))
