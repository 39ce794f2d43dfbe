"""Two processes of one script, started as torchrun would start them."""

import os
import socket
import subprocess
import sys

ABORTED = "terminate called without an active exception"
"""What the C++ runtime says when a process ends while a thread of its communication library still runs. Seen once in
some twenty runs on a busy machine, after all work was done and without a line of Python: the pair is then run again."""


def run_two(script, directory):
    """Run the script with the directory as its argument, once a rank, and see both end well."""
    codes, logs = _run(script, directory)
    if codes != [0, 0] and all(log.strip() in ("", ABORTED) for log in logs):
        codes, logs = _run(script, directory)
    assert codes == [0, 0], [log[-3000:] for log in logs]


def _run(script, directory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    children, paths = [], [directory / f"rank-{rank}.log" for rank in range(2)]
    for rank, path in enumerate(paths):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"}
        with path.open("w") as log:
            command = [sys.executable, str(script), str(directory)]
            children.append(subprocess.Popen(command, env=os.environ | shared | own, stdout=log, stderr=log))
    try:
        codes = [child.wait(timeout=300) for child in children]
    finally:
        for child in children:
            child.kill()
    return codes, [path.read_text() for path in paths]
