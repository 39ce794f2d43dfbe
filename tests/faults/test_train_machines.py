"""One run on two machines, with a real rendezvous over the network between them: torchrun and accelerate's launcher."""

import signal
import subprocess
import sys
import time
import warnings

import pytest
import yaml

from namespaces import two_machines
from tpkd.training.directory import read_result
from tpkd.training.loop import train
from training.equality import metrics_of
from training.tiny import make_config, plain_config, with_cache

PORT = "29544"
SECONDS = 200
"""Ten times what it takes."""


def torchrun(rank, first):
    where = ["--nnodes=2", f"--node-rank={rank}", "--nproc-per-node=1", f"--master-addr={first.address}"]
    return [sys.executable, "-m", "torch.distributed.run", *where, f"--master-port={PORT}", "-m", "tpkd"]


def accelerate_launch(rank, first):
    where = ["--multi_gpu", "--num_machines=2", "--num_processes=2", f"--machine_rank={rank}", "--mixed_precision=no"]
    where += [f"--main_process_ip={first.address}", f"--main_process_port={PORT}", "--num_cpu_threads_per_process=1"]
    return [sys.executable, "-m", "accelerate.commands.launch", *where, "-m", "tpkd"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A configuration, and the run of one process."""
    directory = tmp_path_factory.mktemp("machines")
    with_cache(directory)
    train(make_config(directory), directory / "alone")
    return directory


def launched(config, logs, launcher):
    """Start a run on two machines; returns the exit codes, as soon as all have ended or one has failed.

    The other one would wait for it. A process that waits in vain writes where it stands into its log.
    """
    with two_machines() as machines:
        processes = []
        try:
            for rank, machine in enumerate(machines):
                command = [*launcher(rank, machines[0]), "train", str(config)]
                with logs[rank].open("w") as log:
                    processes.append(machine.start(command, stdout=log, stderr=log))
            codes = [None, None]
            deadline = time.monotonic() + SECONDS
            while None in codes and not any(codes) and time.monotonic() < deadline:
                time.sleep(0.1)
                codes = [process.poll() for process in processes]
        finally:
            for number in (signal.SIGABRT, signal.SIGKILL):
                for machine in machines:
                    machine.signal_all(number)
                for process in processes:
                    process.wait()
    return codes


@pytest.mark.parametrize("launcher", [torchrun, accelerate_launch])
def test_two_machines_do_what_one_does(alone, tmp_path, launcher):
    logs = [tmp_path / f"{rank}.log" for rank in range(2)]
    for attempt in range(2):  # a rendezvous is between two clocks and two schedulers: it may fail once, never silently
        directory = tmp_path / f"run-{attempt}"
        config = tmp_path / f"run-{attempt}.yaml"
        config.write_text(yaml.safe_dump(plain_config(alone, output=str(directory))))
        codes = launched(config, logs, launcher)
        if codes == [0, 0]:
            break
        warnings.warn("\n".join(log.read_text()[-5000:] for log in logs), stacklevel=1)
    assert codes == [0, 0], "\n".join(log.read_text()[-5000:] for log in logs)
    result, expected = read_result(directory), read_result(alone / "alone")
    assert (result.processes, result.steps, result.samples) == (2, expected.steps, expected.samples)
    for one, two in zip(metrics_of(alone / "alone"), metrics_of(directory), strict=True):
        one.pop("accuracy", None), two.pop("accuracy", None)
        assert two.pop("kind") == one.pop("kind")
        assert two == pytest.approx(one, rel=1e-3, abs=1e-4)  # rounding, over fifteen steps


def test_the_machines_see_each_other_and_nothing_else():
    with two_machines() as (first, second):
        listening = "import socket; s = socket.create_server(('{}', 29545)); print(1, flush=True); s.accept()"
        server = first.start([sys.executable, "-c", listening.format(first.address)], stdout=subprocess.PIPE)
        try:
            server.stdout.readline()
            call = "import socket; socket.create_connection(('{}', {}), timeout=10)"
            there = second.start([sys.executable, "-c", call.format(first.address, 29545)])
            assert there.wait(timeout=60) == 0
            outside = second.start([sys.executable, "-c", call.format("192.0.2.1", 9)], stderr=subprocess.DEVNULL)
            assert outside.wait(timeout=60) != 0
        finally:
            server.kill()
            server.wait()
