"""Jobs in processes: all are done once, a failure or a death costs one, and nothing outlives the caller."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compare.worker_jobs import work
from tpkd.compare.workers import run_jobs


def collect(jobs, processes=1):
    events = []
    run_jobs(jobs, work, processes=processes, threads=1, on_event=events.append)
    return events


def test_failures_and_deaths_cost_their_own_job_alone(tmp_path):
    kinds = ("good", "input", "bug", "die", "good")
    jobs = {f"{index}-{kind}": (kind, tmp_path / f"{index}") for index, kind in enumerate(kinds)}
    events = collect(jobs)
    ends = {event.job: event for event in events if event.kind in ("finished", "failed")}
    assert [event.job for event in events if event.kind == "started"] == list(jobs)
    assert {name: event.kind for name, event in ends.items()} == {
        name: "finished" if "good" in name else "failed" for name in jobs
    }
    assert ends["1-input"].problem == "config.yaml: wrong"
    assert ends["1-input"].trace == ""
    assert ends["2-bug"].problem == "ValueError: first line"
    assert "second line" in ends["2-bug"].trace
    assert ends["3-die"].problem == "its process ended with SIGKILL"
    assert [(event.done, event.total) for event in events if event.kind == "progress" and event.done == 2] == [
        (2, 2)
    ] * 2
    # A process that failed by an exception goes on with the next job, one that died is replaced.
    assert (tmp_path / "0").read_text() != (tmp_path / "4").read_text()


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for a process in /proc")
def test_processes_end_with_a_caller_that_is_killed(tmp_path):
    code = (
        "from compare.worker_jobs import work\n"
        "from tpkd.compare.workers import run_jobs\n"
        f"run_jobs({{'a': ('wait', {str(tmp_path / 'pid')!r})}}, work, processes=1, threads=1, on_event=print)\n"
    )
    (tmp_path / "script.py").write_text(f"if __name__ == '__main__':\n    exec({code!r})\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sys.path))}
    caller = subprocess.Popen([sys.executable, tmp_path / "script.py"], env=environment, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        worker = int((tmp_path / "pid").read_text())
        assert is_running(worker)
    finally:
        caller.send_signal(signal.SIGKILL)
        caller.wait()
    wait_for(lambda: not is_running(worker))


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
