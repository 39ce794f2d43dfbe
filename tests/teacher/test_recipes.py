"""With a cache at hand the teacher is not even built, and a cache of another teacher is refused all the same."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tpkd.config.loading import ConfigError
from tpkd.data.configured import load_data
from tpkd.errors import InputError
from tpkd.teacher import caching, network
from tpkd.teacher.cache.manifest import MANIFEST_NAME
from tpkd.training.log import LOG_NAME
from tpkd.training.loop import train
from tpkd.training.run import assemble, start_accelerator
from training.tiny import make_config, with_cache

SMALL = {"limit": 40, "epochs": 1, "views": {"num_views": 2, "pad": 1, "scale": 16}}


@pytest.fixture
def builds(monkeypatch):
    """Every building of a teacher."""
    found, build = [], network.build_model
    monkeypatch.setattr(network, "build_model", lambda spec: found.append(spec) or build(spec))
    return found


def opened(config, directory):
    return assemble(config, start_accelerator(config), directory).teacher


def test_training_with_a_cache_does_not_build_the_teacher(tmp_path, builds):
    config = with_cache(tmp_path, **SMALL)
    del builds[:]
    train(config)
    assert not builds


def test_other_weights_in_the_same_file_are_refused(tmp_path):
    config = with_cache(tmp_path, **SMALL)
    weights = load_file(config.teacher.weights)
    name = sorted(weights)[0]
    save_file(weights | {name: weights[name] + 1}, config.teacher.weights)
    with pytest.raises(InputError, match=r"teacher\.cache: .*model_fingerprint: expected"):
        opened(config, tmp_path)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("teacher.options={input_size: 64, hidden: [24, 25]}", "layers.1.weight: expected shape"),
        ("teacher.layers=[1]", "tensors.layer_1: expected 24, found nothing"),
        ("views.pad=2", "preprocessing.pad: expected 2, found 1"),
        ("teacher.cache_dtype=float32", "dtype: expected 'float32'"),
    ],
)
def test_what_differs_is_still_refused_by_name(tmp_path, override, message):
    with_cache(tmp_path, **SMALL)
    with pytest.raises(InputError, match=message):
        opened(make_config(tmp_path, [override], **SMALL), tmp_path)


def test_a_random_teacher_has_to_be_asked_for_beside_its_cache_too(tmp_path):
    asked = ["teacher.weights=null", "teacher.untrained=true"]
    with_cache(tmp_path, asked, **SMALL)
    with pytest.raises(ConfigError, match=r"teacher\.weights: expected trained weights"):
        opened(make_config(tmp_path, asked[:1], **SMALL), tmp_path)


@pytest.mark.parametrize("change", ["written by an older version", "weights saved again"])
def test_where_the_manifest_does_not_know_the_files_the_teacher_is_built_and_the_log_says_so(tmp_path, builds, change):
    config = with_cache(tmp_path, **SMALL)
    if change == "weights saved again":
        save_file(load_file(config.teacher.weights), config.teacher.weights, metadata={"saved": "again"})
    else:
        path = tmp_path / "cache" / MANIFEST_NAME
        manifest = json.loads(path.read_text())
        del manifest["model_source"]
        path.write_text(json.dumps(manifest))
    del builds[:]
    train(config)
    assert len(builds) == 1
    assert "the teacher was built to check its cache" in (Path(config.directory) / LOG_NAME).read_text()
    caching.build(config)
    del builds[:]
    assert torch.isfinite(opened(config, tmp_path).answer(None, *ids_of(config)).logits).all()
    assert not builds


def ids_of(config):
    ids = torch.from_numpy(load_data(config, "train").ids[:3])
    return ids, torch.zeros_like(ids)
