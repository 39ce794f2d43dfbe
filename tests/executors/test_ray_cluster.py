"""A grid on a Ray cluster of two nodes, one of which is killed; and clusters that cannot be used."""

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest

from executors.ray_grid import SEEDS, grid
from executors.ray_nodes import two_nodes
from tpkd.compare.run import compare
from tpkd.errors import InputError
from tpkd.executors.ray_cluster import RayExecutor, _look
from tpkd.executors.shared_files import Probe
from tpkd.executors.status import read_statuses


@pytest.fixture
def short():
    """A directory with a short name: Ray puts sockets there, whose paths may have 107 characters."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def without_times(value):
    """A record without what a clock says."""
    if isinstance(value, dict):
        return {key: without_times(part) for key, part in value.items() if key != "seconds"}
    return [without_times(part) for part in value] if isinstance(value, list) else value


def record(directory):
    text = (directory / "comparison.json").read_text()
    # The name of the grid is that of its configuration.
    return without_times(json.loads(text.replace(directory.name, "GRID")))


def kill_while_both_work(second, directory):
    """Wait until a cell is in its middle on each node, kill a node, and let the others go on once its cell is dead."""
    while len(paused := list((directory / "paused").glob("tpkd-*"))) < 2:
        time.sleep(0.05)
    processes = [int(path.read_text()) for path in paused]
    second.kill()
    while all(psutil.pid_exists(process) for process in processes):
        time.sleep(0.05)
    (directory / "go-on").touch()


def test_a_node_is_killed_and_the_record_is_that_of_one_machine(tmp_path, short, monkeypatch):
    compare(grid(tmp_path / "here"))
    with two_nodes(short, monkeypatch) as (address, second):
        killing = threading.Thread(target=kill_while_both_work, args=(second, tmp_path / "there"), daemon=True)
        killing.start()
        script = [sys.executable, Path(__file__).with_name("ray_grid.py"), tmp_path / "there", address]
        # A process of its own: Ray keeps the token of the first cluster that a process saw.
        done = subprocess.run(script, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        killing.join()
    statuses = read_statuses(tmp_path / "there")
    assert [status.kind for status in statuses] == ["finished"] * 3
    assert sorted(status.attempt for status in statuses) == [1, 1, 2]
    assert record(tmp_path / "there") == record(tmp_path / "here")
    for seed in SEEDS:
        name = f"students/tpkd-{seed}.npy"
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes()


def test_no_cluster_at_the_address(tmp_path):
    with pytest.raises(InputError, match=r"--address: no Ray cluster at nowhere"):
        RayExecutor(print, tmp_path, address="nowhere")


def test_what_a_node_says_that_does_not_see_the_directory(tmp_path):
    assert "the node 10.0.0.7 does not see the files" in _look(Probe(tmp_path, "token"), "10.0.0.7")
