"""With a cache at hand the teacher is not even built, and a cache of another teacher is refused all the same."""

import dataclasses
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
from tpkd.teacher.cache.read import open_cache
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
        ("teacher.top_k=3", "top_k: expected 3, found nothing"),
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


@pytest.mark.parametrize(("asked", "kept"), [(3, 3), (10, 10), (64, 10)])
def test_no_more_classes_are_kept_than_there_are(tmp_path, asked, kept, builds):
    config = with_cache(tmp_path, [f"teacher.top_k={asked}"], **SMALL)
    assert open_cache(config.teacher.cache).top_k == kept
    del builds[:]
    teacher = opened(config, tmp_path)
    assert not builds
    assert teacher.answer(None, *ids_of(config)).logits.k == kept


@pytest.mark.parametrize("built", [False, True])
def test_another_number_of_kept_classes_is_refused_by_name(tmp_path, built, builds):
    """Whether the manifest knows the teacher's files or the teacher has to be built to compare it."""
    config = with_cache(tmp_path, ["teacher.top_k=3"], **SMALL)
    if built:
        save_file(load_file(config.teacher.weights), config.teacher.weights, metadata={"saved": "again"})
    del builds[:]
    assert opened(config, tmp_path).top_k == 3
    assert len(builds) == built
    for override, message in (
        (["teacher.top_k=4"], "top_k: expected 4, found 3"),
        (["teacher.top_k=64"], "top_k: expected 10, found 3"),
        ([], "top_k: expected nothing, found 3"),
    ):
        with pytest.raises(InputError, match=rf"teacher\.cache: .*computed from something else: {message}$"):
            opened(make_config(tmp_path, override, **SMALL), tmp_path)


def test_a_cache_without_a_network_is_taken_truncated_or_not_unless_the_configuration_says(tmp_path):
    whole = with_cache(tmp_path, **SMALL).teacher.cache
    truncated = with_cache(tmp_path, ["teacher.top_k=3", f"teacher.cache={tmp_path / 'top'}"], **SMALL).teacher.cache
    for cache, top_k, found in ((whole, None, None), (truncated, None, 3), (truncated, 3, 3)):
        teacher = {"cache": cache, "layers": [2]} | ({} if top_k is None else {"top_k": top_k})
        assert opened(make_config(tmp_path, teacher=teacher, **SMALL), tmp_path).top_k == found
    for cache, top_k, message in ((whole, 3, "expected 3, found nothing"), (truncated, 2, "expected 2, found 3")):
        config = make_config(tmp_path, teacher={"cache": cache, "layers": [2], "top_k": top_k}, **SMALL)
        with pytest.raises(InputError, match=rf"teacher\.cache: .*top_k: {message}$"):
            opened(config, tmp_path)


def test_other_labels_are_other_data(tmp_path):
    """The label's log-probability is part of a row, and the fingerprint of the data binds the labels."""
    dataset = load_data(make_config(tmp_path, **SMALL), "train")
    assert dataclasses.replace(dataset, labels=(dataset.labels + 1) % 10).fingerprint != dataset.fingerprint
