"""Jobs through submitit, on its local cluster: several at a time, one preempted, one cancelled; and no SLURM at all."""

import os
import signal
import sys

import psutil
import pytest

from executors.worker_jobs import resumable, work
from tpkd.errors import InputError
from tpkd.executors.jobs import run_jobs
from tpkd.executors.slurm import SlurmExecutor
from tpkd.executors.status import read_status


@pytest.fixture(autouse=True)
def found_by_jobs(monkeypatch):
    """Jobs import this process's modules, the tests among them."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))


def run(executor, jobs, on_event=lambda event: None):
    events = []

    def note(event):
        events.append(event)
        on_event(event)

    run_jobs(executor, jobs, note)
    return {event.job: event for event in events if event.is_end}


def test_jobs_end_as_on_one_machine(tmp_path):
    jobs = {f"{index}-{kind}": (kind, tmp_path / f"{index}") for index, kind in enumerate(("good", "input", "die"))}
    ends = run(SlurmExecutor(work, tmp_path / "grid", cluster="local", at_most=2), jobs)
    assert {name: end.kind for name, end in ends.items()} == {
        "0-good": "finished",
        "1-input": "failed",
        "2-die": "failed",
    }
    assert ends["1-input"].problem == "config.yaml: wrong"
    assert ends["2-die"].problem == "its process ended with SIGKILL"


@pytest.mark.parametrize("how", ["preempted", "cancelled"])
def test_a_job_that_is_taken_away_continues(tmp_path, how):
    """SLURM requeues a preempted job by itself; a cancelled one fails, and the same command continues it."""
    executor = SlurmExecutor(resumable, tmp_path / "grid", cluster="local")
    sent = []

    def take_away(event):
        if event.kind == "progress" and not sent:
            handle = executor._running["a"]
            if how == "preempted":  # SLURM signals the job; its stand-in has it as a child
                psutil.Process(int(handle.job_id)).children()[0].send_signal(signal.SIGUSR2)
            else:
                handle.cancel()
            sent.append(event.done)

    end = run(executor, {"a": str(tmp_path / "numbers")}, take_away)["a"]
    assert sent
    if how == "cancelled":
        assert end.kind == "failed"
        assert "ended as" in end.problem
        assert read_status(tmp_path / "grid", "a").kind == "failed"
        end = run(SlurmExecutor(resumable, tmp_path / "grid", cluster="local"), {"a": str(tmp_path / "numbers")})["a"]
    assert end.kind == "finished"
    writers = [(tmp_path / "numbers" / str(number)).read_text() for number in range(100)]
    assert len(set(writers)) == 2  # nothing was counted twice, and both attempts counted


def test_a_machine_without_slurm_is_told_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="--on slurm: expected the command sbatch on this machine"):
        SlurmExecutor(work, tmp_path)
