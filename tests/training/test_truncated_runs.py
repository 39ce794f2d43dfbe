"""Training from a truncated cache: the same run as from a whole one where nothing was cut, and resumed exactly."""

import json

import pytest
import torch
from safetensors.torch import load_file

from tpkd.config.loading import ConfigError
from tpkd.files import read_text
from tpkd.training import train
from tpkd.training.directory import STUDENT_NAME
from training.tiny import plain_config, with_cache


def truncated(directory, k, dtype="float16", **changes):
    """A run whose cache keeps k of ten classes."""
    plain = plain_config(directory, **changes)
    student, teacher = plain["student"] | {"layers": []}, plain["teacher"] | {"layers": [], "cache_dtype": dtype}
    if k is not None:
        teacher |= {"top_k": k, "cache": f"{teacher['cache']}-{k}"}
    return with_cache(directory, student=student, teacher=teacher, **changes)


def weights(config, directory):
    train(config, directory)
    return load_file(directory / STUDENT_NAME)


def distance(one, other):
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.parametrize(("dtype", "most"), [("float32", 2e-5), ("float16", 5e-3)])
@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_with_all_classes_but_one_it_is_training_from_the_whole_cache(tmp_path, dtype, most, temperature):
    """Up to the rounding of what is stored: logits there, log-probabilities here."""
    objective = {"name": "tpkd", "settings": {"temperature": temperature}}
    whole = weights(truncated(tmp_path, None, dtype, objective=objective), tmp_path / "whole")
    kept = weights(truncated(tmp_path, 9, dtype, objective=objective), tmp_path / "kept")
    few = weights(truncated(tmp_path, 1, dtype, objective=objective), tmp_path / "few")
    assert distance(whole, kept) < most
    assert distance(whole, few) > 4 * most  # so that the comparison can fail


@pytest.mark.parametrize("name", ["ce", "tpkd", "tpkd-no-ce", "tpkd-no-projection", "compensation-only"])
def test_every_objective_that_takes_one_learns_from_it_and_continues_bit_for_bit(tmp_path, name):
    config = truncated(tmp_path, 3, objective=name)
    whole = weights(config, tmp_path / "whole")

    class StopError(Exception):
        pass

    def stop(report):
        if report.step == 6:
            raise StopError

    with pytest.raises(StopError):
        train(config, tmp_path / "parts", on_step=stop)
    resumed = weights(config, tmp_path / "parts")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    if name != "ce":
        assert "monitor" in read_text(tmp_path / "parts" / "metrics.jsonl", 1 << 20)


def test_kd_takes_one_at_temperature_one(tmp_path):
    settings = {"temperature": 1.0}
    weights(truncated(tmp_path, 3, objective={"name": "kd", "settings": settings}), tmp_path / "kd")
    with pytest.raises(ConfigError, match=r"teacher\.cache: expected all classes, found the top 3 .*'kd'"):
        train(truncated(tmp_path, 3, objective="kd"), tmp_path / "softened")


def test_the_monitor_observes_the_step_at_the_temperature_of_the_objective(tmp_path):
    """Losses and blocking speak of the predictions, which are the same at the first step; compensation does not."""
    first = {}
    for temperature in (1.0, 4.0):
        objective = {"name": "tpkd", "settings": {"temperature": temperature}}
        config = truncated(tmp_path, 3, objective=objective, epochs=1, monitor_every=1)
        train(config, tmp_path / f"at-{temperature}")
        lines = map(json.loads, read_text(tmp_path / f"at-{temperature}" / "metrics.jsonl", 1 << 20).splitlines())
        first[temperature] = next(line for line in lines if line["kind"] == "monitor")
    assert first[1.0]["conditional_loss"] == first[4.0]["conditional_loss"]
    assert first[1.0]["compensation"] != first[4.0]["compensation"]
