import pytest
import torch
import yaml
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
        (
            {"fc.weight": torch.zeros(6, 6)},
            r"fc\.weight: expected shape \(5, 6\), found \(6, 6\): a head for 6 .* data have 5$",
        ),
        ({"fc.weight": torch.zeros(5, 7)}, r"fc\.weight: expected shape \(5, 6\), found \(5, 7\)$"),
        (
            {"layers.0.bias": torch.zeros(9), "fc.bias": torch.zeros(6)},
            r"layers\.0\.bias: expected shape \(8,\), found \(9,\); 1 more shapes differ$",
        ),
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
    with pytest.raises(InputError, match=r"missing fc\.bias; unexpected module\.fc\.bias; .*\{module: ''\}$"):
        load_weights(build("mlp", seed=2), tmp_path / "w.safetensors")


THEIRS = {"layers.0": "encoder.0", "layers.1": "encoder.2", "fc": "classifier"}
"""First parts of our names of an MLP -> those of another code base."""


def their_names(state):
    return {
        f"module.{THEIRS[name.rpartition('.')[0]]}.{name.rpartition('.')[2]}": value for name, value in state.items()
    }


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("written", ["{}", "{}.", "module.{}"])
def test_names_of_another_code_base_are_mapped(suffix, written, tmp_path):
    saved, other = build("mlp", seed=1), build("mlp", seed=2)
    state = their_names(plain_state(saved)) | {"module.projector.bias": torch.zeros(3)}
    (torch.save if suffix == ".pth" else save_file)(state, tmp_path / f"w{suffix}")
    weight_map = {written.format(theirs): ours for ours, theirs in THEIRS.items()} | {"projector": None}
    names = load_weights(other, tmp_path / f"w{suffix}", weight_map=weight_map)
    assert sorted(names) == sorted(saved.state_dict())
    assert weights_fingerprint(saved) == weights_fingerprint(other)


def test_names_are_returned_in_the_order_of_the_file(tmp_path):
    state = plain_state(build("mlp", seed=1))
    order = ["fc.bias", "layers.1.weight", "fc.weight", "layers.0.bias", "layers.1.bias", "layers.0.weight"]
    torch.save({name: state[name] for name in order}, tmp_path / "w.pth")
    assert load_weights(build("mlp", seed=2), tmp_path / "w.pth") == tuple(order)


def test_the_map_that_a_refusal_proposes_loads_the_file(tmp_path):
    saved, other = build("mlp", seed=1), build("mlp", seed=2)
    torch.save(their_names(plain_state(saved)), tmp_path / "w.pth")
    with pytest.raises(InputError, match="does not fit the network") as error:
        load_weights(other, tmp_path / "w.pth")
    proposed = yaml.safe_load(str(error.value).rpartition("weight_map: ")[2])
    load_weights(other, tmp_path / "w.pth", weight_map=proposed)
    assert weights_fingerprint(saved) == weights_fingerprint(other)


def test_a_map_that_matches_nothing_is_said_with_the_closest_name(tmp_path):
    torch.save(their_names(plain_state(build("mlp", seed=1))), tmp_path / "w.pth")
    weight_map = {"encoder": "layers", "encoder.2": "layers.1", "clasifier": "fc"}
    with pytest.raises(InputError, match=r"'clasifier' matches no name, did you mean classifier\?; closest .*"):
        load_weights(build("mlp", seed=2), tmp_path / "w.pth", weight_map=weight_map)


def test_two_tensors_under_one_name_are_refused(tmp_path):
    state = plain_state(build("mlp", seed=1)) | {"head.bias": torch.zeros(5)}
    torch.save(state, tmp_path / "w.pth")
    with pytest.raises(InputError, match=r"found fc\.bias and head\.bias both as 'fc\.bias'"):
        load_weights(build("mlp", seed=2), tmp_path / "w.pth", weight_map={"head": "fc"})


def test_a_map_that_is_not_enough_is_completed_in_the_names_of_the_file(tmp_path):
    """A wrapper of another library's network: its own names need a part in front of them beside a mapped head."""
    saved, other = build("bert", seed=1), build("bert", seed=2)
    state = {f"backbone.{name}": value for name, value in plain_state(saved.network).items()}
    state |= {f"cls.{name}": value for name, value in plain_state(saved.head).items()} | {"aux.bias": torch.zeros(1)}
    torch.save(state, tmp_path / "w.pth")
    weight_map = {"backbone": "", "cls": "head", "aux": None}
    with pytest.raises(InputError, match=r"closest by shape and name: weight_map: \{backbone") as error:
        load_weights(other, tmp_path / "w.pth", weight_map=weight_map)
    proposed = yaml.safe_load(str(error.value).rpartition("weight_map: ")[2])
    load_weights(other, tmp_path / "w.pth", weight_map=weight_map | proposed)
    assert weights_fingerprint(saved) == weights_fingerprint(other)
