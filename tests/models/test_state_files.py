"""State dicts of torch's own files and of hostile ones."""

import os
import pickle

import pytest
import torch

from models.networks import build, plain_state, save
from tpkd.errors import InputError
from tpkd.models.weights import load_weights, weights_fingerprint


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".bin"])
@pytest.mark.parametrize("kind", ["mlp", "resnet"])
def test_torchs_own_files_load_as_safetensors_do(kind, suffix, tmp_path):
    saved, other = build(kind, seed=1), build(kind, seed=2)
    torch.save(saved.state_dict(), tmp_path / f"w{suffix}")
    load_weights(other, tmp_path / f"w{suffix}")
    assert weights_fingerprint(saved) == weights_fingerprint(other)


def nest(key):
    return lambda state: {"epoch": 7, "best": 0.5, key: state}


@pytest.mark.parametrize("key", ["state_dict", "model", "model_state_dict"])
def test_a_checkpoint_gives_the_state_dict_inside_it_and_says_so(key, tmp_path, caplog):
    saved, other = build("mlp", seed=1), build("mlp", seed=2)
    torch.save(nest(key)(plain_state(saved)), tmp_path / "w.pth")
    with caplog.at_level("INFO", logger="tpkd"):
        load_weights(other, tmp_path / "w.pth")
    assert weights_fingerprint(saved) == weights_fingerprint(other)
    assert f"{tmp_path / 'w.pth'}: took the weights under {key!r}" in caplog.text


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
