"""What a `.safetensors` file says beside its numbers."""

import pytest
import torch
from safetensors.torch import save_file

from tpkd.arrays import open_array
from tpkd.class_names import to_metadata
from tpkd.errors import InputError


def test_class_names_come_with_the_array(tmp_path):
    save_file({"x": torch.zeros(2, 3)}, tmp_path / "a.safetensors", metadata=to_metadata(["cat", "dog", "bird"]))
    assert open_array(tmp_path / "a.safetensors").class_names == ("cat", "dog", "bird")


def test_class_names_that_are_none_are_refused(tmp_path):
    save_file({"x": torch.zeros(2, 3)}, tmp_path / "a.safetensors", metadata={"class_names": "{"})
    with pytest.raises(InputError, match=r"a\.safetensors: metadata class_names: expected a JSON list of names"):
        open_array(tmp_path / "a.safetensors")
