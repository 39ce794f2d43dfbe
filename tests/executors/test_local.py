"""Jobs in processes: all are done once, a failure or a death costs one, and nothing outlives the caller."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from executors.worker_jobs import visible_device, work
from tpkd.executors.jobs import run_jobs
from tpkd.executors.local import LocalExecutor


def collect(jobs, processes=1):
    events = []
    run_jobs(LocalExecutor(work, processes=processes), jobs, events.append)
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


def test_each_process_sees_one_device(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "mine")
    executor = LocalExecutor(visible_device, processes=2, devices=("3", "5"))
    run_jobs(executor, {name: str(tmp_path / name) for name in "ab"}, lambda event: None)
    assert {(tmp_path / name).read_text() for name in "ab"} == {"3", "5"}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "mine"
    run_jobs(LocalExecutor(visible_device, processes=1), {"c": str(tmp_path / "c")}, lambda event: None)
    assert (tmp_path / "c").read_text() == "mine"


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for a process in /proc")
def test_processes_end_with_a_caller_that_is_killed(tmp_path):
    code = (
        "from executors.worker_jobs import work\n"
        "from tpkd.executors.jobs import run_jobs\n"
        "from tpkd.executors.local import LocalExecutor\n"
        f"run_jobs(LocalExecutor(work, processes=1), {{'a': ('wait', {str(tmp_path / 'pid')!r})}}, print)\n"
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


def test_a_process_that_has_ended_by_itself_is_asked_without_waiting_for_it(tmp_path):
    """As when a scheduler signals all processes of a job: a run may have saved and ended before its caller asks."""
    executor = LocalExecutor(work, processes=1)
    executor.submit("a", ("wait", str(tmp_path / "pid")))
    assert next(executor.events()).kind == "started"
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    executor._workers[0].process.join()
    ending = threading.Thread(target=executor.cancel, daemon=True)
    ending.start()
    ending.join(60)
    assert not ending.is_alive()


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
