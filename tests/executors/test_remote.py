"""A job on another machine, played by this one: its directory, its variables, its status, and how it is stopped."""

import os
import threading
import time
from dataclasses import replace

import pytest

from executors.worker_jobs import save_when_asked, where_am_i, work
from tpkd.executors.remote import STOPPED, RemoteJob, lost, this_place
from tpkd.executors.shared_files import Probe, leave_probe
from tpkd.executors.status import cancel_path, read_status
from tpkd.files import write_file


@pytest.fixture(autouse=True)
def back_home(monkeypatch):
    """A remote job changes the directory of its process."""
    monkeypatch.chdir(os.getcwd())


def test_it_finds_directory_and_variables_of_the_caller(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TPKD_DATA", "somewhere")
    monkeypatch.setenv("OTHER", "stays at home")
    place = this_place(leave_probe(tmp_path))
    assert (place.working_directory, place.variables["TPKD_DATA"]) == (str(tmp_path), "somewhere")
    assert "OTHER" not in place.variables
    monkeypatch.chdir("/")
    monkeypatch.delenv("TPKD_DATA")
    end = RemoteJob("a", str(tmp_path / "found"), where_am_i, 1, place)()
    assert end.kind == "finished"
    assert (tmp_path / "found").read_text() == f"{tmp_path} somewhere"
    status = read_status(tmp_path, "a")
    assert (status.kind, status.where) == ("finished", end.where)


def test_a_failure_is_told_with_its_trace(tmp_path):
    end = RemoteJob("a", ("bug", tmp_path / "x"), work, 1, this_place(leave_probe(tmp_path)))()
    assert (end.kind, end.problem) == ("failed", "ValueError: first line")
    assert "second line" in read_status(tmp_path, "a").trace


def test_a_node_without_the_files_or_the_directory_is_named(tmp_path):
    place = this_place(leave_probe(tmp_path))
    blind = replace(place, probe=Probe(tmp_path / "other", "token"))
    assert "does not see the files" in RemoteJob("a", None, work, 1, blind)().problem
    lost_directory = replace(place, working_directory=str(tmp_path / "gone"))
    assert f"{tmp_path / 'gone'}: not a directory on " in RemoteJob("a", None, work, 1, lost_directory)().problem


def test_a_request_to_cancel_lets_it_save(tmp_path):
    job = RemoteJob("a", str(tmp_path), save_when_asked, 1, this_place(leave_probe(tmp_path)))

    def ask():
        while not (tmp_path / "running").exists():
            time.sleep(0.01)
        write_file(cancel_path(tmp_path), "")

    asking = threading.Thread(target=ask)
    asking.start()
    end = job()
    asking.join()
    assert (end.kind, end.problem) == ("failed", STOPPED)
    assert read_status(tmp_path, "a").kind == "stopped"
    assert (tmp_path / "saved").exists()


def test_a_job_that_was_lost_is_marked(tmp_path):
    event = lost("a", tmp_path, "node gone")
    assert (event.kind, read_status(tmp_path, "a").problem) == ("failed", "node gone")
