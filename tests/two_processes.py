"""Two processes of one script, started as torchrun would start them."""

import os
import socket
import subprocess
import sys


def run_two(script, directory):
    """Run the script with the directory as its argument, once a rank, and see both end well."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    children = []
    for rank in range(2):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"}
        with (directory / f"rank-{rank}.log").open("w") as log:
            command = [sys.executable, str(script), str(directory)]
            children.append(subprocess.Popen(command, env=os.environ | shared | own, stdout=log, stderr=log))
    try:
        codes = [child.wait(timeout=300) for child in children]
    finally:
        for child in children:
            child.kill()
    assert codes == [0, 0], [(directory / f"rank-{rank}.log").read_text()[-3000:] for rank in range(2)]
