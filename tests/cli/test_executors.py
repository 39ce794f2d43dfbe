"""Where jobs run: the options, what does not go together, and what a machine has."""

import pytest

from tpkd.cli import executors as module
from tpkd.cli.executors import Resources, executor_for, gpu_names
from tpkd.errors import InputError
from tpkd.executors.local import LocalExecutor
from tpkd.executors.slurm import SlurmExecutor


@pytest.mark.parametrize(
    ("on", "asked", "message"),
    [
        ("slrum", Resources(), r"--on: expected local, ray or slurm, found 'slrum'; did you mean slurm\?"),
        ("local", Resources(address="auto"), "--address: expected --on ray beside it, found --on local"),
        ("ray", Resources(partition="gpu"), "--partition: expected --on slurm beside it, found --on ray"),
        ("ray", Resources(submitit="local"), "--submitit: expected --on slurm beside it, found --on ray"),
        ("slurm", Resources(submitit="here"), "--submitit: expected slurm or local, found 'here'"),
        ("slurm", Resources(gpus=0.5), "--gpus: expected a whole number for SLURM, found 0.5"),
        ("local", Resources(gpus=1), "--gpus: expected --on ray or slurm beside it"),
    ],
)
def test_options_that_do_not_go_together(on, asked, message):
    with pytest.raises(InputError, match=message):
        executor_for(on, asked)


def test_a_process_per_gpu_or_per_core(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "cores", lambda: 7)
    assert executor_for("local", Resources())(print, tmp_path)._processes == 7
    monkeypatch.setattr(module, "gpu_names", lambda: ("0", "1", "2"))
    made = executor_for("local", Resources(cpus=4))(print, tmp_path)
    assert isinstance(made, LocalExecutor)
    assert (made._processes, made._threads, made._devices) == (3, 4, ("0", "1", "2"))
    assert executor_for("local", Resources(jobs=2))(print, tmp_path)._processes == 2


def test_gpus_as_the_environment_names_them(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpu_names() == ("0", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-7f")
    assert gpu_names() == ("3", "GPU-7f")


def test_slurm_gets_what_was_asked_for(tmp_path):
    asked = Resources(jobs=3, cpus=2, minutes=30, submitit="local")
    made = executor_for("slurm", asked)(print, tmp_path)
    assert isinstance(made, SlurmExecutor)
    assert (made._at_most, made._threads) == (3, 2)
    assert made._executor._executor.parameters["timeout_min"] == 30
