import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from models.networks import KINDS, build, inputs_for, plain_state, save
from tpkd.errors import InputError
from tpkd.models.weights import load_weights, weights_fingerprint


@pytest.mark.parametrize("kind", KINDS)
def test_weights_come_back_and_the_fingerprint_says_so(kind, tmp_path):
    saved, other = build(kind, seed=1), build(kind, seed=2)
    assert weights_fingerprint(saved) != weights_fingerprint(other)
    load_weights(other, save(saved, tmp_path / "w.safetensors"))
    assert weights_fingerprint(saved) == weights_fingerprint(other)
    x = inputs_for(kind)
    assert torch.equal(saved.eval()(x), other.eval()(x))


def test_fingerprint_sees_every_bit_name_dtype_and_shape():
    model = build("resnet")
    seen = {weights_fingerprint(model)}
    for name in ("conv1.weight", "layer3.0.bn2.running_var", "bn1.num_batches_tracked", "fc.bias"):
        tensor = model.state_dict()[name].reshape(-1)
        before = tensor[0].clone()
        tensor.view(torch.uint8)[0] ^= 1
        seen.add(weights_fingerprint(model))
        tensor[0] = before
    assert weights_fingerprint(model) in seen
    assert len(seen) == 5
    model.layer1, model.stage1 = nn.Identity(), model.layer1
    seen.add(weights_fingerprint(model))
    assert len(seen) == 6
    flat = nn.ParameterDict({"a": torch.zeros(4)})
    square = nn.ParameterDict({"a": torch.zeros(2, 2)})
    assert (
        len({weights_fingerprint(part) for part in (flat, square, nn.ParameterDict({"a": torch.zeros(4).half()}))}) == 3
    )


def test_fingerprint_does_not_see_layout_and_order():
    model = nn.Linear(3, 4)
    twin = nn.Linear(3, 4)
    twin.bias, twin.weight = model.bias, nn.Parameter(model.weight.detach().T.contiguous().T)
    assert not twin.weight.is_contiguous()
    reversed_order = nn.Module()
    reversed_order.bias, reversed_order.weight = model.bias, model.weight
    assert list(reversed_order.state_dict()) != list(model.state_dict())
    assert weights_fingerprint(model) == weights_fingerprint(twin) == weights_fingerprint(reversed_order)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_numbers_are_converted_to_the_network(dtype, tmp_path):
    saved = build("mlp", seed=1)
    file = save(build("mlp", seed=1).to(dtype), tmp_path / "w.safetensors")
    model = build("mlp", seed=2)
    load_weights(model, file)
    assert model.fc.weight.dtype == torch.float32
    assert torch.equal(model.fc.weight, saved.fc.weight.to(dtype).float())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fc.bias": None}, r"does not fit the network: missing fc\.bias$"),
        ({"head.bias": torch.zeros(1)}, r"does not fit the network: unexpected head\.bias$"),
        ({"fc.bias": None, "b": torch.zeros(1)}, r"does not fit the network: missing fc\.bias; unexpected b$"),
        ({str(i): torch.zeros(1) for i in range(5)}, r"unexpected 0, 1, 2 and 2 more$"),
        ({"fc.weight": torch.zeros(6, 6)}, r"fc\.weight: expected shape \(5, 6\), found \(6, 6\)$"),
    ],
)
def test_what_does_not_fit_is_named_in_one_line_and_nothing_is_loaded(changes, message, tmp_path):
    file = save(build("mlp", seed=1), tmp_path / "w.safetensors", **changes)
    model = build("mlp", seed=2)
    before = weights_fingerprint(model)
    with pytest.raises(InputError, match=message) as error:
        load_weights(model, file)
    assert str(error.value).startswith(f"{file}: ")
    assert "\n" not in str(error.value)
    assert weights_fingerprint(model) == before


def test_names_of_the_wrapped_network_are_understood(tmp_path):
    """Published encoder weights carry the encoder's names, not those of our classifier around it."""
    saved = build("bert", seed=1)
    file = save(saved.network, tmp_path / "encoder.safetensors")
    with pytest.raises(InputError, match=r"missing head\.bias, head\.weight$"):
        build("bert", seed=2, weights=file)
    model = build("bert", seed=2, weights=file, head="random")
    assert weights_fingerprint(model.network) == weights_fingerprint(saved.network)


@pytest.mark.parametrize("kind", ["mlp", "resnet", "bert"])
def test_a_random_head_keeps_weights_of_other_classes_out(kind, tmp_path):
    file = save(build(kind, num_classes=9, seed=1), tmp_path / "w.safetensors")
    model = build(kind, num_classes=5, seed=2, weights=file, head="random")
    assert model.num_classes == 5
    x = inputs_for(kind)
    expected = build(kind, num_classes=9, seed=1).eval().outputs(x).features
    assert torch.equal(model.eval().outputs(x).features, expected)


def prefix(text):
    return lambda state: {f"{text}{name}": value for name, value in state.items()}


@pytest.mark.parametrize("text", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_names_of_a_parallel_or_compiled_module_are_stripped(text, suffix, tmp_path, caplog):
    saved, other = build("mlp", seed=1), build("mlp", seed=2)
    state = prefix(text)(plain_state(saved))
    (torch.save if suffix == ".pth" else save_file)(state, tmp_path / f"w{suffix}")
    with caplog.at_level("INFO", logger="tpkd"):
        load_weights(other, tmp_path / f"w{suffix}")
    assert weights_fingerprint(saved) == weights_fingerprint(other)
    assert f"without {text!r}" in caplog.text


def test_a_prefix_that_some_names_lack_is_not_stripped(tmp_path):
    state = plain_state(build("mlp", seed=1))
    state["module.fc.bias"] = state.pop("fc.bias")
    save_file(state, tmp_path / "w.safetensors")
    with pytest.raises(InputError, match=r"missing fc\.bias; unexpected module\.fc\.bias$"):
        load_weights(build("mlp", seed=2), tmp_path / "w.safetensors")
