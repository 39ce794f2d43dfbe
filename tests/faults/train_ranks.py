"""One of two processes that share every batch, its rank in the environment as torchrun sets it.

    python train_ranks.py DIRECTORY

Leaves `rank-R.safetensors` (what the first step of every case gave, by dtype, objective and share of ignored labels)
and the runs `two` (a plain one), `unbroken` and `stopped` (one that was stopped and continued), and `selecting` and
`selecting-stopped`, whose student has batch statistics and is chosen by validation.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from safetensors.torch import save_file

from tpkd.training import loop
from tpkd.training import run as training_run
from tpkd.training.loop import train
from tpkd.training.run import assemble, end_processes, start_accelerator
from tpkd.training.step import take_step
from training.forgetful import forgetful, with_batch_norm
from training.steps import first_steps
from training.tiny import ALIGNED, SEPARABLE, make_config, online

DTYPES = {"float32": torch.float32, "float64": torch.float64}
CASES = {
    **SEPARABLE,
    "tpkd-weighted": {},
    "kd-weighted": {},
    "dhkd-aligned": ALIGNED,
    "dto-kd": {"layer_features": "own-objective"},
}
CLASS_WEIGHTS = {str(digit): 1 + digit / 3 for digit in range(10)}


def all_steps(directory, micro_batch_size):
    """What the first step of every case gives, by name."""
    found = {}
    for label, dtype in DTYPES.items():
        torch.set_default_dtype(dtype)
        for name, settings in CASES.items():
            data = {"name": "digits"} | ({"class_weights": CLASS_WEIGHTS} if name.endswith("-weighted") else {})
            config = make_config(
                directory,
                data=data,
                objective={"name": name.removesuffix("-aligned").removesuffix("-weighted"), "settings": settings},
                teacher={"cache": str(directory / "cache"), "layers": [2]},
                batch_size=64,
                micro_batch_size=micro_batch_size,
            )
            for key, value in first_steps(config, directory).items():
                found[f"{label}/{name}/{key}"] = value
        torch.set_default_dtype(torch.float32)
    return found


def check_teacher(directory):
    """A teacher that runs at every step, with batch statistics, comes out of a step as it went in."""
    config = online(make_config(directory))
    run = assemble(config, start_accelerator(config), directory)
    teacher = run.teacher.model
    teacher.layers[0] = torch.nn.Sequential(teacher.layers[0], torch.nn.BatchNorm1d(24)).eval().requires_grad_(False)
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    take_step(run, 1, run.batches[0])
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())
    assert not teacher.training
    assert isinstance(run.module, torch.nn.parallel.DistributedDataParallel)


class StopError(Exception):
    pass


def stop_and_continue(config, directory, stop_at=7, whole_step=take_step):
    def stopping(run, step, samples, **options):
        if step == stop_at:
            raise StopError
        return whole_step(run, step, samples, **options)

    loop.take_step = stopping
    try:
        train(config, directory)
    except StopError:
        loop.take_step = whole_step
    train(config, directory)
    loop.take_step = take_step


def select(directory):
    """The student that is chosen was trained before the last checkpoint, which later steps follow."""
    config = make_config(
        directory,
        objective="ce",
        teacher=None,
        student={"model": "builtin:mlp", "options": {"input_size": 64, "hidden": [16]}},
        data={"name": "digits", "validation": 0.2},
        limit=160,  # whole batches, because a share of one sample has no statistics
        selection="best-validation",
    )
    training_run.build_student = with_batch_norm(training_run.build_student)
    loop.take_step = forgetful(11)  # the first step of the last of three epochs
    train(config, directory / "selecting")
    stop_and_continue(config, directory / "selecting-stopped", stop_at=14, whole_step=forgetful(11))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    save_file(all_steps(place, 32), place / f"rank-{os.environ['RANK']}.safetensors")
    check_teacher(place)
    train(make_config(place, evaluation={"limit": 100, "batch_size": 7}), place / "two")
    student = {"model": "builtin:mlp", "options": {"input_size": 64, "hidden": [16], "dropout": 0.2}}
    dropout = make_config(place, objective="dto-kd", student=student)
    train(dropout, place / "unbroken")
    stop_and_continue(dropout, place / "stopped")
    select(place)
    end_processes()
