"""Jobs in processes of this machine: several at a time, and a process that dies only fails its own job."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from tpkd.executors.jobs import Executor, JobEvent, Work, attempt
from tpkd.termination import request

DEVICES_VARIABLE = "CUDA_VISIBLE_DEVICES"


class LocalExecutor(Executor):
    """At most `processes` jobs at a time, in order.

    Each process runs one job after another, so libraries are loaded once. When the caller is stopped, its processes
    are asked to end as if by SIGTERM and the caller waits until they have saved; when it is killed, they exit.

    Example:
        >>> import time
        >>> from tpkd.executors.jobs import run_jobs
        >>> ends = []
        >>> run_jobs(LocalExecutor(sum, processes=2), {}, ends.append)
        >>> ends
        []
    """

    def __init__(self, work: Work, *, processes: int, threads: int = 1, devices: Sequence[str] = ()) -> None:
        """Start nothing yet.

        Args:
            work: called in the process.
            processes: maximum number of processes.
            threads: torch threads per process.
            devices: one per process in turn, as CUDA_VISIBLE_DEVICES names them; empty = all processes see all.
        """
        super().__init__(work)
        self._processes, self._threads, self._devices = processes, threads, tuple(devices)
        self._payloads: dict[str, Any] = {}
        self._workers: list[_Worker] = []

    def submit(self, job: str, payload: Any) -> None:
        """Put a job at the end of the queue."""
        self._payloads[job] = payload

    def events(self) -> Iterator[JobEvent]:
        """Run what was submitted; ends when every job has ended."""
        waiting = list(self._payloads)
        while waiting or any(worker.job is not None for worker in self._workers):
            for worker in self._workers:
                if worker.job is None and waiting:
                    yield worker.give(waiting.pop(0), self._payloads)
            while waiting and len(self._workers) < self._processes:
                self._workers.append(_Worker(self.work, self._threads, self._free_device()))
                yield self._workers[-1].give(waiting.pop(0), self._payloads)
            busy = {worker.connection: worker for worker in self._workers if worker.job is not None}
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                yield worker.hear()
                if worker.is_dead:
                    self._workers.remove(worker)

    def _free_device(self) -> str | None:
        """The device that the fewest processes use."""
        taken = [worker.device for worker in self._workers]
        return min(self._devices, key=taken.count) if self._devices else None

    def ask_to_end(self) -> None:
        """Ask the processes to save and end; may be called from another thread than that of `events`."""
        # Not with a signal: if the whole process group already received one, a second would kill them before they save.
        # Not with a multiprocessing event either: its set() hangs if a process that waits for it has already exited.
        for worker in list(self._workers):
            with suppress(OSError):
                worker.stopping.send(None)

    def cancel(self) -> None:
        """Ask the processes to end, and wait until they have saved."""
        self.ask_to_end()
        for worker in self._workers:
            worker.process.join()
            worker.connection.close()  # only now, because they may still send messages until they end
            worker.stopping.close()
        self._workers.clear()


class _Worker:
    """A process and the caller's end of the connection to it."""

    def __init__(self, work: Work, threads: int, device: str | None) -> None:
        # Spawned: a forked copy of a process with threads, or with a device, may hang.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        asked, self.stopping = context.Pipe(duplex=False)
        self.device = device
        arguments = (theirs, asked, work, threads)
        self.process = context.Process(target=_serve, args=arguments, daemon=True)
        with _visible(device):
            self.process.start()
        theirs.close()
        asked.close()
        self.job: str | None = None
        self.is_dead = False

    def give(self, job: str, payloads: Mapping[str, Any]) -> JobEvent:
        self.job = job
        with suppress(OSError):  # it may already be dead, which `hear` reports
            self.connection.send((job, payloads[job]))
        return JobEvent("started", job)

    def hear(self) -> JobEvent:
        """The next message; if the process died, that its job failed."""
        assert self.job is not None
        try:
            event: JobEvent = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            event = JobEvent("failed", self.job, problem=f"its process ended with {how}")
            self.is_dead = True
        if event.is_end:
            self.job = None
        return event


@contextmanager
def _visible(device: str | None) -> Iterator[None]:
    """Let a process that starts now see one device: the variable is read before any of its own code runs."""
    before = os.environ.get(DEVICES_VARIABLE)
    if device is not None:
        os.environ[DEVICES_VARIABLE] = device
    try:
        yield
    finally:
        if device is not None:
            os.environ.pop(DEVICES_VARIABLE)
            if before is not None:
                os.environ[DEVICES_VARIABLE] = before


def _serve(connection: Connection, asked: Connection, work: Work, threads: int) -> None:
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # interrupts are handled by the caller, which ends this process
    threading.Thread(target=_die_with_parent, daemon=True).start()
    threading.Thread(target=_stop_when_asked, args=(asked,), daemon=True).start()
    torch.set_num_threads(threads)
    while True:
        try:
            job, payload = connection.recv()
        except EOFError:
            return
        connection.send(attempt(job, payload, work, connection.send))


def _stop_when_asked(asked: Connection) -> None:
    with suppress(EOFError, OSError):  # the caller is gone, which ends this process in another way
        asked.recv()
        request()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
