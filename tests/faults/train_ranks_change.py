"""One of two processes whose runs are stopped by a signal, or come from or go on with another number of processes.

    python train_ranks_change.py DIRECTORY

Finds the run `grown`, which one process began, and leaves it finished; leaves `unbroken`, `terminated` (SIGTERM to the
second process alone, then continued) and `shrunk` (stopped, for one process to finish).
"""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tpkd.training import loop
from tpkd.training.loop import train
from tpkd.training.run import end_processes
from tpkd.training.step import take_step
from training.tiny import make_config

STOPPED_AT = 7


class StopError(Exception):
    pass


def change_config(directory):
    """Dropout, so that the generators of every process count; a snapshot before the runs are stopped."""
    student = {"model": "builtin:mlp", "options": {"input_size": 64, "hidden": [16], "dropout": 0.2}}
    return make_config(directory, objective="ce", student=student, snapshots=[1], checkpoints={"every": 4, "keep": 2})


def stopping(act):
    """A step that does something before it is taken the seventh time."""

    def step(run, number, samples, **options):
        if number == STOPPED_AT:
            act()
        return take_step(run, number, samples, **options)

    return step


def stop():
    raise StopError


def terminate():
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGTERM)


def stopped(config, directory, act):
    """Train until `act` ends it; returns how."""
    loop.take_step = stopping(act)
    try:
        train(config, directory)
    except (StopError, SystemExit) as error:
        return error
    finally:
        loop.take_step = take_step
    raise AssertionError("the run was not stopped")


if __name__ == "__main__":
    place = Path(sys.argv[1])
    config = change_config(place)
    train(config, place / "unbroken")
    assert stopped(config, place / "terminated", terminate).code == 128 + signal.SIGTERM
    train(config, place / "terminated", resume=True)
    stopped(config, place / "shrunk", stop)
    train(config, place / "grown", resume=True)
    end_processes()
