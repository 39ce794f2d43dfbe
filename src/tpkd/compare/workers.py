"""Jobs in processes of their own: several at a time, and a process that dies costs its own job alone."""

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
"""Between two messages about the progress of one job."""

OnProgress = Callable[[int, int], None]
"""Steps done and steps in all."""

Work = Callable[[Any, OnProgress], None]
"""What a process does with a job; a function of a module, because it is looked up by name there."""


@dataclass(frozen=True)
class JobEvent:
    """What somebody who watches is told: a job `started`, made `progress`, `finished` or `failed`."""

    kind: str
    job: str
    done: int = 0
    total: int = 0
    problem: str = ""
    """One line."""
    trace: str = ""
    """Where it failed; empty for a mistake of the user's."""


def run_jobs(
    jobs: Mapping[str, Any], work: Work, *, processes: int, threads: int, on_event: Callable[[JobEvent], None]
) -> None:
    """Do every job once, in order, at most `processes` at a time; a failure is an event and stops nothing.

    A process serves one job after another, so that libraries load once. When the caller is stopped its processes are
    asked to end as by SIGTERM, and it waits until they have saved; when it is killed they end.

    Args:
        jobs: name -> what `work` is given.
        work: called in the process.
        processes: how many at a time.
        threads: threads of each process.
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
        # Not by a signal: where the whole process group was given one, a second would end them before they have saved.
        for worker in workers:
            worker.stopping.set()
        for worker in workers:
            worker.process.join()
            worker.connection.close()  # now, because what they say until then must have somewhere to go


class _Worker:
    """A process and the caller's end of the line to it."""

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
        with suppress(OSError):  # it may be dead already, and `hear` says so
            self.connection.send((job, jobs[job]))

    def hear(self, on_event: Callable[[JobEvent], None]) -> bool:
        """Pass on a message; False if the process has died, which fails its job."""
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

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the caller's, who ends this process
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
