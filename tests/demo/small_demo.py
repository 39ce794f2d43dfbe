"""The demo in small, in this process: every objective, two seeds, fewer samples, and everything that follows."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tpkd.compare import run as comparison
from tpkd.demo import run as demo
from tpkd.executors.jobs import JobEvent

SEEDS = (42, 43)
TEACHER = ["epochs=8"]
GRID = [
    "limit=240",
    "evaluation.limit=200",
    "epochs=6",
    "batch_size=16",
    "optimizer.learning_rate=0.1",
    "monitor_every=10",
    "methods.ce.snapshots=[2,4,6]",
    "methods.dkd={objective.settings: {warmup_epochs: 4, beta: 1.0}}",
    "methods.xe-kl={optimizer.weight_decay: 1.0e-4}",
    "study.blocking.samples=40",
    "study.exact_head={batches: 2, batch_size: 32}",
    "study.certificates={batches: 1, batch_size: 16}",
    "study.continuation={iterations: 8, points: [0, 1, 8], observation: 64}",
]


def inline_jobs(executor, jobs, on_event):
    """What `run_jobs` does, without processes; a job fails by an exception."""
    for name, payload in jobs.items():
        on_event(JobEvent("started", name))
        try:
            executor.work(payload, lambda done, total: None)
        except Exception as error:
            on_event(JobEvent("failed", name, problem=str(error)))
        else:
            on_event(JobEvent("finished", name))


def run_small_demo(directory):
    with pytest.MonkeyPatch.context() as patch:
        for module in (comparison, demo):
            patch.setattr(module, "run_jobs", inline_jobs)
        return demo.run_demo(Path(directory), processes=1, seeds=SEEDS, teacher_overrides=TEACHER, overrides=GRID)


@cache
def small_demo():
    """One for all tests of this process; they leave it as it is."""
    return run_small_demo(Path(_place().name) / "demo")


@cache
def _place():
    return TemporaryDirectory(prefix="small-demo-")  # goes when this process ends
