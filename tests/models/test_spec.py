"""The source of a model changes with whatever the model is built from, and with nothing else."""

import hashlib
import json
import shutil

import pytest

from tpkd.errors import InputError
from tpkd.models.spec import ModelSpec, model_source

BASE = {"num_classes": 10, "options": {"input_size": 4}, "head": "own", "seed": 0}


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "README.md").write_text("hello")
    return folder


def test_every_argument_counts(tmp_path):
    first, second = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    first.write_bytes(b"a")
    second.write_bytes(b"b")
    changes = [
        {"num_classes": 11},
        {"options": {"input_size": 5}},
        {"head": "random"},
        {"seed": 1},
        {"weights": first},
        {"weights": second},
    ]
    sources = [model_source(ModelSpec("builtin:mlp", **(BASE | change))) for change in [{}, *changes]]
    sources.append(model_source(ModelSpec("builtin:resnet20", **BASE)))
    assert None not in sources
    assert len(set(sources)) == len(sources)


def test_the_bytes_of_a_file_count_and_its_place_does_not(tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"same")
    shutil.copy(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    first, second = (
        model_source(ModelSpec("builtin:mlp", **BASE, weights=tmp_path / f"{name}.safetensors")) for name in "ab"
    )
    assert first == second
    with pytest.raises(InputError, match="missing"):
        model_source(ModelSpec("builtin:mlp", **BASE, weights=tmp_path / "missing.safetensors"))


def test_a_folder_counts_by_what_a_network_is_made_of(tmp_path, folder):
    source = model_source(ModelSpec(f"hf:{folder}", **BASE))
    assert source is not None
    shutil.copytree(folder, tmp_path / "elsewhere")
    (folder / "README.md").write_text("other words")
    assert (
        model_source(ModelSpec(f"hf:{folder}", **BASE))
        == model_source(ModelSpec(f"hf:{tmp_path / 'elsewhere'}", **BASE))
        == source
    )
    (folder / "config.json").write_text('{"activation": "relu"}')
    assert model_source(ModelSpec(f"hf:{folder}", **BASE)) != source


@pytest.mark.parametrize("name", ["hf:somebody/model", "timm:hf-hub:somebody/model", "timm:resnet18"])
def test_what_a_library_fetches_has_no_source(name):
    assert model_source(ModelSpec(name, num_classes=10, options={"pretrained": True})) is None


def test_a_map_of_names_counts_only_where_there_is_one():
    """Caches know the hash of their teacher from before there were maps."""
    parts = {"name": "builtin:resnet8", "num_classes": 5, "options": {}, "head": "own", "seed": 3}
    parts |= {"files": {}, "weights": None}
    before = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    assert model_source(ModelSpec("builtin:resnet8", 5, seed=3)) == before
    assert model_source(ModelSpec("builtin:resnet8", 5, seed=3, weight_map={"head": "fc"})) != before
