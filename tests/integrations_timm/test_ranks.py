"""Two processes that share a batch take the step of one process."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from safetensors.torch import load_file

from integrations_timm.ranks import step
from integrations_timm.tiny import assert_gradients_close


def test_both_processes_hold_the_gradients_of_one_process(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name("ranks.py")), str(tmp_path)]
    children = []
    for rank in range(2):
        with (tmp_path / f"rank-{rank}.log").open("w") as log:
            own = os.environ | shared | {"RANK": str(rank)}
            children.append(subprocess.Popen(command, env=own, stdout=log, stderr=log))
    try:
        codes = [child.wait(timeout=300) for child in children]
    finally:
        for child in children:
            child.kill()
    assert codes == [0, 0], [(tmp_path / f"rank-{rank}.log").read_text()[-3000:] for rank in range(2)]
    first, second = (load_file(tmp_path / f"rank-{rank}.safetensors") for rank in range(2))
    assert first.keys() == second.keys()
    assert all(gradient.equal(second[name]) for name, gradient in first.items())
    assert_gradients_close(first, step())
