import os
import pickle

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from models.networks import KINDS, build, inputs_for
from tpkd.errors import InputError
from tpkd.models.weights import load_weights, weights_fingerprint


def save(model, path, **changes):
    state = {name: value.contiguous() for name, value in model.state_dict().items()} | changes
    save_file({name: value for name, value in state.items() if value is not None}, path)
    return path


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


def plain_state(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def nest(key):
    return lambda state: {"epoch": 7, "best": 0.5, key: state}


def prefix(text):
    return lambda state: {f"{text}{name}": value for name, value in state.items()}


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".bin"])
@pytest.mark.parametrize("kind", ["mlp", "resnet"])
def test_torchs_own_files_load_as_safetensors_do(kind, suffix, tmp_path):
    saved, other = build(kind, seed=1), build(kind, seed=2)
    torch.save(saved.state_dict(), tmp_path / f"w{suffix}")
    load_weights(other, tmp_path / f"w{suffix}")
    assert weights_fingerprint(saved) == weights_fingerprint(other)


@pytest.mark.parametrize("key", ["state_dict", "model", "model_state_dict"])
def test_a_checkpoint_gives_the_state_dict_inside_it_and_says_so(key, tmp_path, caplog):
    saved, other = build("mlp", seed=1), build("mlp", seed=2)
    torch.save(nest(key)(plain_state(saved)), tmp_path / "w.pth")
    with caplog.at_level("INFO", logger="tpkd"):
        load_weights(other, tmp_path / "w.pth")
    assert weights_fingerprint(saved) == weights_fingerprint(other)
    assert f"{tmp_path / 'w.pth'}: took the weights under {key!r}" in caplog.text


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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"epoch": 3, "optimizer": {}}, "expected a state dict, or one under .*, found the keys epoch, optimizer$"),
        ({"state_dict": {}, "model": {}}, "expected a state dict, or one under .*, found the keys model, state_dict$"),
        ({"state_dict": {"fc.bias": 3}}, r"'state_dict': fc\.bias: expected a tensor, found int$"),
        ([torch.zeros(2)], "expected a state dict, or one under .*, found list$"),
        (torch.zeros(2), "expected a state dict, or one under .*, found Tensor$"),
        ({"fc.bias": torch.zeros(9), 3: torch.zeros(1)}, "expected names that are strings, found 3$"),
        ({"fc.bias": torch.zeros(5).to_sparse()}, r"fc\.bias: expected a dense tensor"),
        ({"model": {"fc.bias": torch.zeros(5)}}, r"\('model'\): does not fit the network: missing fc\.weight"),
    ],
)
def test_a_file_of_torch_without_a_state_dict_that_fits_is_one_line(content, message, tmp_path):
    torch.save(content, tmp_path / "w.pth")
    model = build("mlp", seed=2)
    before = weights_fingerprint(model)
    with pytest.raises(InputError, match=message) as error:
        load_weights(model, tmp_path / "w.pth")
    assert "\n" not in str(error.value)
    assert str(tmp_path / "w.pth") in str(error.value)
    assert weights_fingerprint(model) == before


def test_another_suffix_names_those_that_are_read(tmp_path):
    with pytest.raises(InputError, match=r"w\.h5: expected a \.safetensors, \.pth, \.pt or \.bin file, found .*'\.h5'"):
        load_weights(build("mlp"), tmp_path / "w.h5")


class Huge:
    """A pickle of a few bytes that asks for more memory than there is."""

    def __reduce__(self):
        return bytearray, (2**62,)


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_hostile_and_damaged_files_are_refused_and_nothing_runs(tmp_path):
    trap = tmp_path / "ran"
    hostile = {
        "pickle.safetensors": pickle.dumps(Trap(trap)),
        "empty.safetensors": b"",
        "header.safetensors": (200 * 2**20).to_bytes(8, "little") + b"{" * 1000,
        "weights.pt": pickle.dumps(Trap(trap)),
        "plain.pth": pickle.dumps({"fc.bias": [1.0, 2.0]}),
        "empty.pth": b"",
        "text.bin": b"version https://git-lfs.github.com/spec/v1\n",
        "huge.pt": pickle.dumps(Huge(), protocol=2),
    }
    whole = save(build("mlp"), tmp_path / "whole.safetensors").read_bytes()
    hostile["cut.safetensors"] = whole[:-5]
    for name, content in hostile.items():
        file = tmp_path / name
        file.write_bytes(content)
        with pytest.raises(InputError, match=str(file)):
            load_weights(build("mlp"), file)
    for name in ("pipe.safetensors", "pipe.pth"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(InputError, match=rf"{name}: expected a regular file"):
            load_weights(build("mlp"), tmp_path / name)
    with pytest.raises(InputError, match=r"none\.safetensors: cannot be read: No such file or directory$"):
        load_weights(build("mlp"), tmp_path / "none.safetensors")
    assert not trap.exists()
