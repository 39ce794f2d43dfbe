"""Jobs in separate processes: several at a time, and a process that dies only fails its own job."""

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.synchronize import Event
from typing import Any

from tpkd.errors import InputError
from tpkd.termination import request

PROGRESS_SECONDS = 0.2
"""Minimum time between two progress messages of one job."""

OnProgress = Callable[[int, int], None]
"""Steps done and total steps."""

Work = Callable[[Any, OnProgress], None]
"""The function a process runs for a job; must be defined at module level, because it is pickled by name."""


@dataclass(frozen=True)
class JobEvent:
    """A progress event: a job `started`, made `progress`, `finished` or `failed`."""

    kind: str
    job: str
    done: int = 0
    total: int = 0
    problem: str = ""
    """One line."""
    trace: str = ""
    """The traceback; empty if the user's input was wrong."""


def run_jobs(
    jobs: Mapping[str, Any], work: Work, *, processes: int, threads: int, on_event: Callable[[JobEvent], None]
) -> None:
    """Run every job once, in order, at most `processes` at a time; a failure is an event and does not stop the others.

    Each process runs one job after another, so libraries are loaded once. When the caller is stopped, its processes
    are asked to end as if by SIGTERM and the caller waits until they have saved; when it is killed, they exit.

    Args:
        jobs: name -> argument for `work`.
        work: called in the process.
        processes: maximum number of processes.
        threads: torch threads per process.
        on_event: called in the caller's process.
    """
    waiting = list(jobs)
    workers: list[_Worker] = []
    try:
        while waiting or any(worker.job is not None for worker in workers):
            for worker in workers:
                if worker.job is None and waiting:
                    worker.give(waiting.pop(0), jobs, on_event)
            while waiting and len(workers) < processes:
                workers.append(_Worker(work, threads))
                workers[-1].give(waiting.pop(0), jobs, on_event)
            busy = {worker.connection: worker for worker in workers if worker.job is not None}
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                if not worker.hear(on_event):
                    workers.remove(worker)
    finally:
        # Not with a signal: if the whole process group already received one, a second would kill them before they save.
        for worker in workers:
            worker.stopping.set()
        for worker in workers:
            worker.process.join()
            worker.connection.close()  # only now, because they may still send messages until they end


class _Worker:
    """A process and the caller's end of the connection to it."""

    def __init__(self, work: Work, threads: int) -> None:
        # Spawned: a forked copy of a process with threads, or with a device, may hang.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.stopping = context.Event()
        arguments = (theirs, self.stopping, work, threads)
        self.process = context.Process(target=_serve, args=arguments, daemon=True)
        self.process.start()
        theirs.close()
        self.job: str | None = None

    def give(self, job: str, jobs: Mapping[str, Any], on_event: Callable[[JobEvent], None]) -> None:
        self.job = job
        on_event(JobEvent("started", job))
        with suppress(OSError):  # it may already be dead, which `hear` reports
            self.connection.send((job, jobs[job]))

    def hear(self, on_event: Callable[[JobEvent], None]) -> bool:
        """Forward a message; False if the process died, which fails its job."""
        assert self.job is not None
        try:
            event = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode or 0
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            on_event(JobEvent("failed", self.job, problem=f"its process ended with {how}"))
            return False
        if event.kind in ("finished", "failed"):
            self.job = None
        on_event(event)
        return True


def _serve(connection: Connection, stopping: Event, work: Work, threads: int) -> None:
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # interrupts are handled by the caller, which ends this process
    threading.Thread(target=_die_with_parent, daemon=True).start()
    threading.Thread(target=_stop_when_asked, args=(stopping,), daemon=True).start()
    torch.set_num_threads(threads)
    while True:
        try:
            job, payload = connection.recv()
        except EOFError:
            return
        connection.send(_attempt(job, payload, work, connection))


def _stop_when_asked(stopping: Event) -> None:
    stopping.wait()
    request()


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _attempt(job: str, payload: Any, work: Work, connection: Connection) -> JobEvent:
    told = -PROGRESS_SECONDS

    def on_progress(done: int, total: int) -> None:
        nonlocal told
        if done == total or time.monotonic() - told >= PROGRESS_SECONDS:
            told = time.monotonic()
            connection.send(JobEvent("progress", job, done, total))

    try:
        work(payload, on_progress)
    except InputError as error:
        return JobEvent("failed", job, problem=str(error))
    except Exception as error:
        lines = str(error).splitlines() or [type(error).__name__]
        return JobEvent("failed", job, problem=f"{type(error).__name__}: {lines[0]}", trace=traceback.format_exc())
    return JobEvent("finished", job)
