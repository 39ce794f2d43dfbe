"""A disk that fails while a run is being saved: an error with the path, and a run that still continues."""

import errno
import os

import pytest

from tpkd.errors import InputError
from tpkd.training.checkpoint import Checkpoints
from tpkd.training.loop import train
from training.equality import assert_same_run
from training.tiny import make_config, with_cache

REAL = {name: getattr(os, name) for name in ("fsync", "rename", "replace", "mkdir")}


def full_disk(descriptor):
    if ".step-" in os.readlink(f"/proc/self/fd/{descriptor}"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    REAL["fsync"](descriptor)


def short_write(descriptor):
    if ".step-" in os.readlink(f"/proc/self/fd/{descriptor}"):
        os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
    REAL["fsync"](descriptor)


def refused(*arguments, **options):
    raise OSError(errno.EACCES, os.strerror(errno.EACCES))


def crash(*arguments, **options):
    raise KeyboardInterrupt


FAULTS = {
    "full disk": ("fsync", full_disk, "No space left on device"),
    "short write": ("fsync", short_write, "short write"),
    "read-only directory": ("mkdir", refused, "Permission denied"),
    "refused rename": ("rename", refused, "Permission denied"),
    "crash between write and rename": ("rename", crash, None),
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    directory = tmp_path_factory.mktemp("writers")
    train(with_cache(directory), directory / "whole")
    return directory


def fail_from(step, name, fault, monkeypatch):
    """Break one call of the system once the run has taken so many steps."""

    def on_step(report):
        if report.step == step:
            monkeypatch.setattr(os, name, fault)

    return on_step


@pytest.mark.parametrize("fault", FAULTS)
def test_a_checkpoint_that_cannot_be_written(shared, tmp_path, monkeypatch, record_property, fault):
    name, broken, message = FAULTS[fault]
    config, run = make_config(shared), tmp_path / "run"
    on_step = fail_from(5, name, broken, monkeypatch)
    if message is None:
        with pytest.raises(KeyboardInterrupt):
            train(config, run, on_step=on_step)
    else:
        with pytest.raises(InputError, match=rf"checkpoints/step-000008: cannot be written: .*{message}"):
            train(config, run, on_step=on_step)
    monkeypatch.undo()
    assert not [path for path in run.rglob("*") if "partial" in path.name]
    assert Checkpoints(run / "checkpoints", keep=2).load().step == 4
    train(config, run)
    assert "continued from step 4" in (run / "run.log").read_text()
    assert_same_run(shared / "whole", run)
    record_property("fault: failing writers", 1)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
@pytest.mark.parametrize("target", ["student.safetensors", "test-logits.safetensors", "result.json"])
def test_a_result_that_cannot_be_written(shared, tmp_path, monkeypatch, record_property, code, target):
    def replace(source, destination):
        if str(destination).endswith(target):
            raise OSError(code, os.strerror(code))
        REAL["replace"](source, destination)

    monkeypatch.setattr(os, "replace", replace)
    config, run = make_config(shared), tmp_path / "run"
    with pytest.raises(InputError, match=rf"{target}: cannot be written"):
        train(config, run)
    monkeypatch.undo()
    assert not (run / "result.json").exists()
    assert not [path for path in run.rglob("*") if "partial" in path.name]
    train(config, run)
    assert_same_run(shared / "whole", run)
    record_property("fault: failing writers", 1)
