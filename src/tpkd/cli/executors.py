"""The options that say where jobs run."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tpkd.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from tpkd.executors.jobs import MakeExecutor

Address = Annotated[
    str | None, typer.Option(help="Of a Ray cluster; default: RAY_ADDRESS, or one started for this command.")
]
Cpus = Annotated[int, typer.Option(help="Cores and threads per job.", min=1)]
Gpus = Annotated[float, typer.Option(help="GPUs per job, on Ray and SLURM.", min=0)]

PLACES = ("local", "ray", "slurm")
SUBMITIT = ("slurm", "local")


@dataclass(frozen=True)
class Resources:
    """What the options ask for."""

    jobs: int = 0
    cpus: int = 1
    gpus: float = 0
    address: str | None = None
    partition: str | None = None
    minutes: int = 240
    submitit: str = "slurm"


def executor_for(on: str, asked: Resources) -> "MakeExecutor":
    """A function that makes the executor, once the work and its directory are known.

    Raises:
        InputError: an unknown name, or an option that the place does not have.

    Example:
        >>> executor_for("rya", Resources())
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: --on: expected local, ray or slurm, found 'rya'; did you mean ray?
    """
    if on not in PLACES:
        raise InputError(f"--on: expected local, ray or slurm, found {on!r}{did_you_mean(on, PLACES)}")
    if asked.submitit not in SUBMITIT:
        raise InputError(f"--submitit: expected slurm or local, found {asked.submitit!r}")
    if asked.address is not None and on != "ray":
        raise InputError(f"--address: expected --on ray beside it, found --on {on}")
    if (asked.partition is not None or asked.submitit != "slurm") and on != "slurm":
        option = "--partition" if asked.partition is not None else "--submitit"
        raise InputError(f"{option}: expected --on slurm beside it, found --on {on}")
    if asked.gpus and on == "local":
        raise InputError("--gpus: expected --on ray or slurm beside it; local cells get one GPU each by themselves")
    if on == "slurm" and asked.gpus != int(asked.gpus):
        raise InputError(f"--gpus: expected a whole number for SLURM, found {asked.gpus:g}")
    return {"local": _local, "ray": _ray, "slurm": _slurm}[on](asked)


def _local(asked: Resources) -> "MakeExecutor":
    from tpkd.executors.local import LocalExecutor

    devices = gpu_names()
    return lambda work, directory: LocalExecutor(
        work, processes=asked.jobs or len(devices) or cores(), threads=asked.cpus, devices=devices
    )


def _ray(asked: Resources) -> "MakeExecutor":
    from tpkd.executors.ray_cluster import RayExecutor

    return lambda work, directory: RayExecutor(
        work, directory, address=asked.address, cpus=asked.cpus, gpus=asked.gpus, threads=asked.cpus
    )


def _slurm(asked: Resources) -> "MakeExecutor":
    from tpkd.executors.slurm import SlurmExecutor

    return lambda work, directory: SlurmExecutor(
        work,
        directory,
        cluster=asked.submitit,
        partition=asked.partition,
        minutes=asked.minutes,
        cpus=asked.cpus,
        gpus=int(asked.gpus),
        threads=asked.cpus,
        at_most=asked.jobs,
    )


def gpu_names() -> tuple[str, ...]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    import torch

    if not torch.cuda.is_available():
        return ()
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return tuple(named) or tuple(str(index) for index in range(torch.cuda.device_count()))


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
