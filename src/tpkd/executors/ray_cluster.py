"""Jobs on a Ray cluster: an existing one by its address, or one that is started on this machine for the command."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tpkd.errors import InputError, extra, reason
from tpkd.executors.jobs import Executor, JobEvent, Work
from tpkd.executors.remote import RemoteJob, lost, this_place
from tpkd.executors.shared_files import Probe, leave_probe
from tpkd.executors.status import StatusReader, cancel_path, read_status
from tpkd.files import write_file

POLL_SECONDS = 0.5
MAX_LOSSES = 10
"""How many machines may be lost under one job before it counts as failed."""
SAVE_SECONDS = 600.0
"""How long a job that is asked to end may take to save."""


class RayExecutor(Executor):
    """One Ray task per job; a job whose node is lost starts again on another one and continues from its checkpoint.

    Example:
        >>> RayExecutor(print, Path("runs/grid"), address="127.0.0.1:6379")  # doctest: +SKIP
    """

    def __init__(
        self,
        work: Work,
        directory: Path,
        *,
        address: str | None = None,
        cpus: float = 1,
        gpus: float = 0,
        threads: int = 1,
    ) -> None:
        """Connect to the cluster and check that all of its nodes see the directory.

        Args:
            work: called on a node.
            directory: for the status files; on a file system that all nodes share.
            address: of a cluster, `auto` for one that runs on this machine; default: the variable RAY_ADDRESS, or a
                cluster that is started on this machine and ends with the command.
            cpus: cores that Ray reserves for each job.
            gpus: GPUs that Ray reserves for each job.
            threads: torch threads per job.

        Raises:
            InputError: no cluster at the address, or a node that does not see the directory.
        """
        super().__init__(work)
        with extra("cluster"):
            import ray
        self._ray: Any = ray
        self._directory, self._threads = directory.resolve(), threads
        self._resources = {"num_cpus": cpus, "num_gpus": gpus}
        self._jobs: dict[str, RemoteJob] = {}
        self._refs: dict[Any, str] = {}
        address = address or os.environ.get("RAY_ADDRESS") or "local"
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported unless the user asks for it
        try:
            with _same_handlers():
                self._ray.init(address=address, log_to_driver=False, logging_level="ERROR", include_dashboard=None)
        except (ConnectionError, ValueError, RuntimeError) as error:
            # Ray keeps the reason to itself where the cluster asks for a token that this process does not send.
            token = "" if "RAY_AUTH_MODE" in os.environ else "; if it asks for a token, set RAY_AUTH_MODE=token"
            raise InputError(f"--address: no Ray cluster at {address}: {reason(error)}{token}") from error
        try:
            probe = leave_probe(self._directory)
            self._check_nodes(probe)
            self._check_resources()
        except BaseException:
            self._ray.shutdown()
            raise
        self._place = this_place(probe)

    def _check_nodes(self, probe: Probe) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        look = self._ray.remote(num_cpus=0, max_retries=0)(_look)
        refs = []
        for node in self._ray.nodes():
            if node["Alive"]:
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)
                refs.append(look.options(scheduling_strategy=there).remote(probe, node["NodeManagerAddress"]))
        for problem in self._ray.get(refs):
            if problem:
                raise InputError(problem)

    def _check_resources(self) -> None:
        """Refuse a job that no node has room for: Ray would wait for such a node for ever."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        for option, key, name in (("--cpus", "CPU", "num_cpus"), ("--gpus", "GPU", "num_gpus")):
            most = max((node.get(key, 0) for node in nodes), default=0)
            if self._resources[name] > most:
                raise InputError(
                    f"{option}: expected at most {most:g}, as the largest node has, found {self._resources[name]:g}"
                )

    def submit(self, job: str, payload: Any) -> None:
        """Put a job at the end of the queue."""
        self._jobs[job] = RemoteJob(job, payload, self.work, self._threads, self._place)

    def events(self) -> Iterator[JobEvent]:
        """Run what was submitted; ends when every job has ended."""
        reader = StatusReader(self._directory, self._jobs)
        task = self._ray.remote(max_retries=MAX_LOSSES, **self._resources)(_call)
        self._refs = {task.options(name=f"tpkd:{job}").remote(remote): job for job, remote in self._jobs.items()}
        while self._refs:
            ready, _ = self._ray.wait(list(self._refs), timeout=POLL_SECONDS)
            yield from reader.events()
            for ref in ready:
                yield self._end(ref)

    def _end(self, ref: Any) -> JobEvent:
        job = self._refs.pop(ref)
        try:
            event: JobEvent = self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            return lost(job, self._directory, f"Ray: {type(error).__name__}: {reason(error)}")
        return event

    def cancel(self) -> None:
        """Ask the jobs that still run to save and end, wait for them, and leave the cluster."""
        try:
            if self._refs:
                write_file(cancel_path(self._directory), "")
                for ref, job in self._refs.items():
                    status = read_status(self._directory, job)
                    if status is None or not status.is_running:
                        self._ray.cancel(ref, force=True)  # still in Ray's queue
                self._ray.wait(list(self._refs), num_returns=len(self._refs), timeout=SAVE_SECONDS)
        finally:
            self._ray.shutdown()


@contextmanager
def _same_handlers() -> Iterator[None]:
    """Keep our answer to SIGTERM: Ray puts its own in place, which ends the process at once."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _call(job: RemoteJob) -> JobEvent:
    return job()


def _look(probe: Probe, where: str) -> str:
    """What is wrong with a node; nothing where it sees the files."""
    try:
        probe.check(f"the node {where}")
    except InputError as error:
        return str(error)
    return ""
