"""What the processes of the worker tests do."""

import os
import signal
import time
from pathlib import Path

from tpkd.compare.cells import run_cell
from tpkd.errors import InputError
from tpkd.files import write_file
from tpkd.termination import TerminatedError, deferred

PAUSED_AT = 150
NEVER_ASKED = 10_000
"""Steps after which a run that should have been asked to end fails instead of going on for ever."""


def work(payload, on_progress):
    kind, path = payload
    if kind == "input":
        raise InputError("config.yaml: wrong")
    if kind == "bug":
        raise ValueError("first line\nsecond line")
    if kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "wait":
        Path(path).write_text(str(os.getpid()))
        time.sleep(600)
    on_progress(1, 2)
    on_progress(2, 2)
    Path(path).write_text(str(os.getpid()))


def where_am_i(path, on_progress):
    Path(path).write_text(f"{os.getcwd()} {os.environ.get('TPKD_DATA')}")


def save_when_asked(directory, on_progress):
    """A run that is asked to end between two steps, and saves."""
    with deferred() as asked:
        for step in range(1, NEVER_ASKED):
            if asked():
                break
            on_progress(step, NEVER_ASKED)
            (Path(directory) / "running").touch()
            time.sleep(0.01)
        else:
            raise ValueError("nobody asked it to end")
        (Path(directory) / "saved").touch()
        raise TerminatedError


def visible_device(path, on_progress):
    Path(path).write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "all"))


def pausing_cell(job, on_progress):
    """A cell of a grid that waits in the middle, after a checkpoint, until it is told to go on."""
    cell, directory = job

    def pause(done, total):
        on_progress(done, total)
        if done == PAUSED_AT:
            write_file(directory / "paused" / cell.name, str(os.getpid()))
            while not (directory / "go-on").exists():
                time.sleep(0.05)

    run_cell(job, pause)


def resumable(directory, on_progress):
    """Counts to a hundred, one file per number; what an earlier attempt has counted is not counted again."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(100):
        if not (directory / str(number)).exists():
            (directory / str(number)).write_text(str(os.getpid()))
            time.sleep(0.05)
        on_progress(number + 1, 100)
