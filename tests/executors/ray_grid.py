"""A small grid, and a process that runs it on a Ray cluster: `ray_grid.py DIRECTORY ADDRESS`."""

import signal
import sys
from pathlib import Path

import yaml

from executors.worker_jobs import PAUSED_AT, pausing_cell
from tpkd.compare.run import compare, open_grid
from tpkd.executors.ray_cluster import RayExecutor

SEEDS = [1, 2, 3]


def grid(directory):
    config = {
        "output": f"{directory}/{{objective}}-{{seed}}",
        "data": {"name": "digits"},
        "views": {"scale": 16},
        "student": {"model": "builtin:mlp", "options": {"input_size": 64, "hidden": [16]}},
        "teacher": {"model": "builtin:mlp", "options": {"input_size": 64, "hidden": [16]}, "untrained": True},
        "objective": "tpkd",
        "optimizer": {"name": "sgd", "learning_rate": 0.05},
        "epochs": 8,
        "batch_size": 16,
        "checkpoints": {"every": PAUSED_AT // 2},
    }
    path = directory.parent / f"{directory.name}.yaml"
    path.write_text(yaml.safe_dump(config))
    return open_grid(path, [], methods=["tpkd"], seeds=SEEDS)


if __name__ == "__main__":
    directory, address = Path(sys.argv[1]), sys.argv[2]
    compare(grid(directory), executor=lambda work, status: RayExecutor(pausing_cell, status, address=address))
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "Ray's handler would end a command before it has saved"
