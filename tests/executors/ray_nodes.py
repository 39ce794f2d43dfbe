"""A Ray cluster of two nodes on this machine, with a token of its own."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

START = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus", "1", "--disable-usage-stats"]
START += ["--object-store-memory", str(80 << 20)]
TRIES = 5
"""Ray's node process gives up when its parts take more than 15 seconds to start, as on a busy machine."""


class Node:
    """A node in a session of its own, which is killed whole."""

    def __init__(self, log, *arguments):
        with log.open("a") as file:
            self.process = subprocess.Popen([*START, *arguments], stdout=file, stderr=file, start_new_session=True)
        self.log = log

    def is_up(self):
        """Whether it says so; False if it has given up."""
        while self.process.poll() is None:
            if "Ray runtime started" in self.log.read_text():
                return True
            time.sleep(0.1)
        return False

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def start(log, *arguments):
    for attempt in range(TRIES):
        node = Node(log.with_suffix(f".{attempt}"), *arguments)
        if node.is_up():
            return node
        node.process.wait()
    raise AssertionError(f"no Ray node after {TRIES} attempts: {node.log.read_text()[-3000:]}")


@contextmanager
def two_nodes(directory, monkeypatch):
    """Address of the head, and the second node."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    monkeypatch.setenv("RAY_TMPDIR", str(directory))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"127.0.0.1:{port}"
    nodes = []
    try:
        # Addresses of their own, because Ray takes two nodes of one address for one.
        head = ("--head", f"--port={port}", "--node-ip-address=127.0.0.1", "--include-dashboard=false")
        nodes.append(start(Path(directory) / "head", *head))
        nodes.append(start(Path(directory) / "second", f"--address={address}", "--node-ip-address=127.0.0.2"))
        yield address, nodes[1]
    finally:
        for node in reversed(nodes):
            if node.process.poll() is None:
                node.kill()
