"""Files that mean harm: refused by name, nothing executed, nothing written outside the run directory."""

import hashlib
import json
import os
import pickle
import shutil
import struct

import pytest

from tpkd.config.loading import load_config
from tpkd.errors import InputError
from tpkd.training.loop import train
from training.tampering import change_state
from training.tiny import make_config, plain_config, with_cache


class Stop(Exception):  # noqa: N818
    pass


def stop(report):
    if report.step == 5:
        raise Stop


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A run that was stopped after its first checkpoint."""
    directory = tmp_path_factory.mktemp("hostile")
    config = with_cache(directory)
    with pytest.raises(Stop):
        train(config, directory / "run", on_step=stop)
    return directory


@pytest.fixture
def place(template, tmp_path):
    shutil.copytree(template / "run", tmp_path / "run")
    return tmp_path


class Bomb:
    """Unpickled it leaves a file behind."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


def header(text):
    return struct.pack("<Q", len(text)) + text


def huge_header():
    size = 200_000_000
    return struct.pack("<Q", size) + b'{"a": "' + b" " * (size - 9) + b'"}'


def overlapping():
    entry = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
    return header(json.dumps({"a": entry, "b": entry}).encode()) + bytes(16)


def beyond():
    return header(json.dumps({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()) + bytes(4)


def plant(place, name, data):
    """Put a file into the checkpoint together with its right size and hash: only its content can give it away."""
    directory = place / "run" / "checkpoints" / "step-000004"
    (directory / name).write_bytes(data)
    entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    change_state(directory, lambda state: state["files"].update({name: entry}))


def files_outside(place):
    return sorted(str(path) for path in place.rglob("*") if "run" not in path.relative_to(place).parts)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("model.safetensors", "huge header"),
        *(
            (f"{name}.safetensors", kind)
            for name in ("model", "optimizer", "random")
            for kind in ("pickle", "overlap", "beyond its end", "empty", "other tensors")
        ),
    ],
)
def test_a_checkpoint_that_is_something_else(template, place, record_property, name, kind):
    from safetensors.torch import save
    from torch import zeros

    data = {
        "pickle": lambda: pickle.dumps(Bomb(place / "owned")),
        "huge header": huge_header,
        "overlap": overlapping,
        "beyond its end": beyond,
        "empty": bytes,
        "other tensors": lambda: save({"unknown": zeros(2)}),
    }[kind]()
    plant(place, name, data)
    before = files_outside(place)
    with pytest.raises(InputError, match=name if kind != "other tensors" else "checkpoint of step 4: does not fit"):
        train(make_config(template), place / "run")
    assert files_outside(place) == before
    record_property("fault: hostile files", 1)


@pytest.mark.parametrize("name", ["../../../outside.safetensors", "/tmp/outside.safetensors", "..", "model.pickle"])
def test_a_checkpoint_that_points_elsewhere(template, place, record_property, name):
    directory = place / "run" / "checkpoints" / "step-000004"
    change_state(directory, lambda state: state["files"].update({name: state["files"]["model.safetensors"]}))
    with pytest.raises(InputError, match=r"state\.json: files: expected NAME\.safetensors"):
        train(make_config(template), place / "run")
    record_property("fault: hostile files", 1)


@pytest.mark.parametrize("path", ["config.yaml", "result.json", "checkpoints/step-000004/state.json"])
@pytest.mark.parametrize("kind", ["pickle", "tag", "deep", "binary"])
def test_a_run_directory_with_a_file_that_is_something_else(template, place, record_property, path, kind):
    data = {
        "pickle": pickle.dumps(Bomb(place / "owned")),
        "tag": f"!!python/object/apply:os.system ['touch {place / 'owned'}']".encode(),
        "deep": b"[" * 100_000,
        "binary": bytes(range(256)),
    }[kind]
    (place / "run" / path).write_bytes(data)
    with pytest.raises(InputError, match=path):
        train(make_config(template), place / "run")
    assert not (place / "owned").exists()
    record_property("fault: hostile files", 1)


@pytest.mark.parametrize("kind", ["pickle", "huge header", "overlap"])
def test_weights_that_are_something_else(template, tmp_path, record_property, kind):
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(
        {"pickle": pickle.dumps(Bomb(tmp_path / "owned")), "overlap": overlapping()}.get(kind) or huge_header()
    )
    student = plain_config(template)["student"] | {"weights": str(weights)}
    with pytest.raises(InputError, match=r"student: .*weights\.safetensors"):
        train(make_config(template, student=student), tmp_path / "run")
    assert not (tmp_path / "owned").exists()
    record_property("fault: hostile files", 1)


@pytest.mark.parametrize(
    "text",
    [
        "data: !!python/object/apply:os.system ['touch {owned}']",
        "data: !!python/object/new:os.system ['touch {owned}']",
        "data: !!python/name:os.system",
        "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]",
        "a: " + "{" * 5000,
    ],
    ids=["apply", "new", "name", "aliases", "deep"],
)
def test_a_configuration_that_wants_to_run_or_to_grow(tmp_path, record_property, text):
    path = tmp_path / "run.yaml"
    path.write_text(text.replace("{owned}", str(tmp_path / "owned")))
    with pytest.raises(InputError, match=r"run\.yaml"):
        load_config(path)
    assert not (tmp_path / "owned").exists()
    record_property("fault: hostile files", 1)
