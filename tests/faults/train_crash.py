"""Kill training runs at random instants and let them continue, from one process that has everything imported.

    python train_crash.py DIRECTORY KILLS OBJECTIVE[-selecting] ...

Every run is a fork, so that a hundred of them take seconds. Half of the kills come from outside after a random time,
half from inside at a random flush or rename: in the middle of a save. Prints one line of JSON for each objective.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tpkd.training.checkpoint import Checkpoints
from tpkd.training.loop import train
from training.equality import assert_same_run
from training.tiny import make_config, online

SETTINGS = {"dto-kd": {"layer_features": "own-objective"}}
CALLS = ("fsync", "rename", "replace")
SELECTING = "-selecting"
"""After the name of an objective: its student is chosen by validation."""
CHOSEN = {"data": {"name": "digits", "validation": 0.2}, "selection": "best-validation"}


def start(config, directory, *, kill_at=None, count_into=None):
    """Train in a child; `kill_at` is the flush or rename before which it dies."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        calls = 0

        def counted(function):
            def call(*arguments, **options):
                nonlocal calls
                calls += 1
                if calls == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments, **options)

            return call

        for name in CALLS:
            setattr(os, name, counted(getattr(os, name)))
        train(config, directory)
        if count_into is not None:
            count_into.write_text(str(calls))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def ended(child):
    """How a child ended: 0, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_and_continue(directory, objective, kills):
    draw = random.Random(f"{objective} {kills}")
    student = {"model": "builtin:mlp", "options": {"input_size": 64, "hidden": [16], "dropout": 0.2}, "layers": [1]}
    config = online(
        make_config(
            directory,
            objective={"name": objective.removesuffix(SELECTING), "settings": SETTINGS.get(objective, {})},
            student=student,
            epochs=6,
            checkpoints={"every": 2, "keep": 2},
            snapshots=[3],
            **(CHOSEN if objective.endswith(SELECTING) else {}),
        )
    )
    train(config, directory / "warm")  # here, so that no child has anything left to load
    began = time.monotonic()
    assert ended(start(config, directory / "whole", count_into=directory / "calls")) == 0
    assert_same_run(directory / "warm", directory / "whole")
    duration, calls = time.monotonic() - began, int((directory / "calls").read_text())
    for call in (1, 2, 3, 4) if objective == "ce" else ():  # before there is anything to continue from
        assert ended(start(config, directory / f"early-{call}", kill_at=call)) == -signal.SIGKILL
        assert ended(start(config, directory / f"early-{call}")) == 0
        assert_same_run(directory / "whole", directory / f"early-{call}")
    steps, in_saves = [], 0
    for trial in range(kills):
        run = directory / f"killed-{trial}"
        if trial % 2:
            child = start(config, run, kill_at=draw.randint(calls // 6, calls))
        else:
            child = start(config, run)
            time.sleep(draw.uniform(0.4, 0.95) * duration)
            os.kill(child, signal.SIGKILL)
        exit_code = ended(child)
        assert exit_code in (0, -signal.SIGKILL), exit_code
        in_saves += bool(list(run.rglob(".step-*")) or list(run.rglob("*.partial")))
        newest = Checkpoints(run / "checkpoints", keep=2).load()  # always readable
        steps.append(newest.step if newest else 0)
        unfinished = not (run / "result.json").exists()  # the last call of all comes after the result
        assert ended(start(config, run)) == 0
        continued = f"continued from step {newest.step}" if newest and unfinished else "started"
        assert continued in (run / "run.log").read_text()
        assert_same_run(directory / "whole", run)
        assert not list(run.rglob(".step-*")), "half-written checkpoints are swept away"
        shutil.rmtree(run)
    continued = sum(step > 0 for step in steps)
    return {"objective": objective, "kills": kills, "in_saves": in_saves, "continued": continued, "steps": steps}


if __name__ == "__main__":
    for name in sys.argv[3:]:
        place = Path(sys.argv[1]) / name
        place.mkdir()
        print(json.dumps(kill_and_continue(place, name, int(sys.argv[2]))), flush=True)
