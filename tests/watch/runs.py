"""Runs as `tpkd train` and `tpkd compare` write them, without training any."""

import json

from tpkd.executors.jobs import JobEvent
from tpkd.executors.status import StatusWriter

KEYS = {
    "train": ("loss",),
    "monitor": ("blocked_share", "conditional_loss", "transfer_cost"),
    "evaluation": ("accuracy",),
}


def line(kind, step, **values):
    return json.dumps({"kind": kind, "step": step, "epoch": 1, "seconds": 0.5, **values}) + "\n"


def metrics(steps, scale=1.0):
    """Lines of some steps; every value can be told from its step."""
    return "".join(
        line(kind, step, **dict.fromkeys(keys, scale / step)) for step in steps for kind, keys in KEYS.items()
    )


def write_run(directory, steps=range(1, 6), *, scale=1.0, finished=False):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.yaml").write_text("output: runs\n")
    (directory / "metrics.jsonl").write_text(metrics(steps, scale))
    if finished:
        (directory / "result.json").write_text("{}")
    return directory


def write_grid(directory, names=("tpkd-42", "kd-42"), **options):
    for place, name in enumerate(names):
        write_run(directory / name, scale=1.0 + place, **options)
    return directory


def note(directory, kind, job, done=0, total=0, problem=""):
    StatusWriter(directory, where="node-1").note(JobEvent(kind, job, done, total, problem=problem))
