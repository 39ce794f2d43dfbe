"""Two machines for a test: network namespaces with addresses of their own, joined by a cable that no one else sees."""

import os
import shutil
import subprocess
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Machine:
    """A namespace, its address, and the interface that has it."""

    name: str
    address: str
    interface: str

    def start(self, command, **options):
        """A process on this machine."""
        inside = ["ip", "netns", "exec", self.name, *command]
        environment = os.environ | {"GLOO_SOCKET_IFNAME": self.interface, "OMP_NUM_THREADS": "1"}
        environment |= {"PYTHONFAULTHANDLER": "1"}  # a signal that ends it shows where it was
        return subprocess.Popen(inside, env=environment, start_new_session=True, **options)

    def signal_all(self, number):
        """Send a signal to every process on this machine, those of a launcher among them."""
        for process in _ip("netns", "pids", self.name).stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(process), number)


@contextmanager
def two_machines():
    """Two of them; skipped, with the reason, where this user may not make namespaces."""
    if shutil.which("ip") is None:
        pytest.skip("the command ip (package iproute2) is not installed, which makes network namespaces")
    tag = f"{os.getpid() % 100_000}"
    sides = ((1, "a"), (2, "b"))
    machines = [Machine(f"tpkd-{tag}-{side}", f"10.77.0.{number}", f"v{side}{tag}") for number, side in sides]
    made = []
    try:
        for machine in machines:
            done = _ip("netns", "add", machine.name)
            if done.returncode:
                pytest.skip(f"this user may not make network namespaces: {done.stderr.strip()}")
            made.append(machine)
        first, second = machines
        cable = ("link", "add", first.interface, "netns", first.name, "type", "veth", "peer", "name", second.interface)
        assert _ip(*cable, "netns", second.name).returncode == 0
        for machine in machines:
            inside = ("-n", machine.name)
            assert _ip(*inside, "addr", "add", f"{machine.address}/24", "dev", machine.interface).returncode == 0
            assert _ip(*inside, "link", "set", machine.interface, "up").returncode == 0
            assert _ip(*inside, "link", "set", "lo", "up").returncode == 0
        yield machines
    finally:
        for machine in made:
            _ip("netns", "del", machine.name)


def _ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True)
