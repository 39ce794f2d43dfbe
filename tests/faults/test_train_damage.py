"""Checkpoints that were changed on disk: always named, the older good one used, and the end weights the same."""

import json
import os
import shutil

import pytest

from tpkd.errors import InputError
from tpkd.training.loop import train
from training.equality import assert_same_run
from training.tiny import make_config, with_cache

NAMES = (
    "state.json",
    "state.sha256",
    *(f"{name}.safetensors" for name in ("model", "optimizer", "objective", "random")),
)
PLACES = (0.0, 0.37, 0.9999) if os.environ.get("TPKD_FAULTS") != "full" else tuple(i / 40 for i in range(41))


class StopError(Exception):
    pass


def stop_at_9(report):
    if report.step == 9:
        raise StopError


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A run that is whole, and one that was stopped after its checkpoints of steps 4 and 8."""
    directory = tmp_path_factory.mktemp("damage")
    train(with_cache(directory), directory / "whole")
    with pytest.raises(StopError):
        train(make_config(directory), directory / "run", on_step=stop_at_9)
    return directory


@pytest.fixture
def run(template, tmp_path):
    shutil.copytree(template / "run", tmp_path / "run")
    return tmp_path / "run"


def checkpoint(run, step=8):
    return run / "checkpoints" / f"step-{step:06d}"


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[min(int(place * len(data)), len(data) - 1)] ^= 1
    path.write_bytes(data)


def assert_falls_back(template, run, name):
    """The run goes on from step 4, says why, keeps the damaged checkpoint aside, and ends as if nothing had been."""
    train(make_config(template), run)
    log = (run / "run.log").read_text()
    assert "continued from step 4" in log
    assert name in log
    assert_same_run(template / "whole", run)
    assert checkpoint(run).with_name("step-000008.damaged-1").is_dir()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", NAMES)
def test_one_flipped_bit_anywhere(template, run, record_property, name, place):
    flip(checkpoint(run) / name, place)
    assert_falls_back(template, run, f"step-000008/{name}")
    record_property("fault: damaged checkpoints", 1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: os.truncate(path, 3)], ids=["gone", "cut"])
def test_a_file_that_is_gone_or_cut_short(template, run, record_property, name, damage):
    damage(checkpoint(run) / name)
    assert_falls_back(template, run, f"step-000008/{name}")
    record_property("fault: damaged checkpoints", 1)


def test_another_momentum_in_the_state(template, run):
    path = checkpoint(run) / "state.json"
    text = path.read_text()
    assert '"momentum": 0.9' in text
    path.write_text(text.replace('"momentum": 0.9', '"momentum": 0.1'))
    assert_falls_back(template, run, "step-000008/state.json")


def test_an_empty_directory_is_no_checkpoint(template, run):
    shutil.rmtree(checkpoint(run))
    checkpoint(run).mkdir()
    assert_falls_back(template, run, "step-000008/state.json")


def metrics_bytes(run, step):
    return json.loads((checkpoint(run, step) / "state.json").read_text())["values"]["metrics_bytes"]


def test_metrics_changed_after_the_older_checkpoint(template, run):
    path, start = run / "metrics.jsonl", metrics_bytes(run, 4)
    assert start < metrics_bytes(run, 8)
    data = bytearray(path.read_bytes())
    data[data.index(b"0.", start) + 2] ^= 1
    path.write_bytes(data)
    assert_falls_back(template, run, "metrics.jsonl")


def files_in(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.name != ".lock"}


@pytest.mark.parametrize("kind", ["metrics", "states"])
def test_nothing_starts_anew_where_no_checkpoint_is_good(template, run, kind):
    if kind == "metrics":
        flip(run / "metrics.jsonl", 0.01)
    else:
        for step in (4, 8):
            flip(checkpoint(run, step) / "state.json", 0.5)
    before = files_in(run)
    name = "metrics.jsonl" if kind == "metrics" else "step-000008/state.json"
    with pytest.raises(InputError, match=rf"{name}: expected SHA-256.*none of 2 checkpoints.*move .* away") as refused:
        train(make_config(template), run)
    assert "\n" not in str(refused.value)
    assert files_in(run) == before


@pytest.mark.parametrize(("schema", "who"), [(1, "an earlier version"), (99, "a later version")])
def test_a_run_of_another_version_is_told_so(template, run, schema, who):
    """Without a digest nothing shows whether it is still what was written."""
    for step in (4, 8):
        path = checkpoint(run, step) / "state.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": schema}))
        (checkpoint(run, step) / "state.sha256").unlink(missing_ok=True)
    before = files_in(run)
    with pytest.raises(InputError, match=rf"step-000008/state\.json: written by {who} of tpkd .*; finish the run with"):
        train(make_config(template), run)
    assert files_in(run) == before


def test_what_was_set_aside_is_kept_once_more(template, run):
    checkpoint(run).with_name("step-000008.damaged-1").mkdir()
    flip(checkpoint(run) / "model.safetensors", 0.5)
    train(make_config(template), run)
    assert len(list(checkpoint(run).with_name("step-000008.damaged-2").iterdir())) == len(NAMES)
