"""Two processes that share every batch take the step of one process."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from integrations.transformers.ranks import first_steps
from integrations.transformers.tiny import assert_close


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """A directory in which two processes have taken a step of every case, started as torchrun would start them."""
    directory = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name("ranks.py")), str(directory)]
    children = []
    for rank in range(2):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
        with (directory / f"rank-{rank}.log").open("w") as log:
            children.append(subprocess.Popen(command, env=os.environ | shared | own, stdout=log, stderr=log))
    try:
        codes = [child.wait(timeout=300) for child in children]
    finally:
        for child in children:
            child.kill()
    assert codes == [0, 0], [(directory / f"rank-{rank}.log").read_text()[-3000:] for rank in range(2)]
    return directory


def test_both_processes_hold_the_gradients_of_one_process(together, tmp_path):
    first, second = (load_file(together / f"rank-{rank}.safetensors") for rank in range(2))
    assert first.keys() == second.keys()
    assert all(value.equal(second[name]) for name, value in first.items())
    expected, logged = first_steps(tmp_path, 64, 1)
    assert_close(first, expected, 1e-13)  # float64: the same sums in another order
    for rank in range(2):
        entries = json.loads((together / f"rank-{rank}.json").read_text())
        for case, entry in entries.items():
            assert entry == pytest.approx(logged[case], rel=1e-5), case  # the log is kept in float32
