"""A job on another machine: a process there that does it, and a status file that both machines see."""

import os
import socket
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tpkd.errors import InputError
from tpkd.executors.jobs import JobEvent, Work
from tpkd.executors.local import LocalExecutor
from tpkd.executors.shared_files import Probe
from tpkd.executors.status import StatusWriter, cancel_path, read_status

LOOK_SECONDS = 1.0
"""Time between two looks for a request to cancel."""

STOPPED = "stopped; it has saved, and the same command continues"


@dataclass(frozen=True)
class Place:
    """What a job needs to find the same files elsewhere."""

    probe: Probe
    """Of the directory with the status files."""
    working_directory: str
    """Paths in a configuration are relative to it."""
    variables: dict[str, str] = field(default_factory=dict)


def this_place(probe: Probe) -> Place:
    """The place of this process: its working directory, and the environment variables that tpkd reads."""
    variables = {name: value for name, value in os.environ.items() if name.startswith("TPKD_")}
    return Place(probe, os.getcwd(), variables)


@dataclass
class RemoteJob:
    """Called on the other machine, by Ray or submitit.

    The work is done in a process of its own: it shares no signal handlers, threads or devices with the engine's worker,
    and can be asked to save and end like any other.
    """

    job: str
    payload: Any
    work: Work
    threads: int
    place: Place
    _inner: LocalExecutor | None = field(default=None, init=False, repr=False)

    def __call__(self) -> JobEvent:
        """Do the job; returns how it ended."""
        where = socket.gethostname()
        try:
            self.place.probe.check(where)
            self._enter()
        except InputError as error:
            return JobEvent("failed", self.job, problem=str(error))  # it names the machine
        directory = self.place.probe.directory
        writer = StatusWriter(directory, where=where)
        inner = self._inner = LocalExecutor(self.work, processes=1, threads=self.threads)
        ended, stopped = threading.Event(), threading.Event()
        watching = threading.Thread(target=self._watch, args=(cancel_path(directory), ended, stopped), daemon=True)
        watching.start()
        end = JobEvent("failed", self.job, problem="it did not end")
        try:
            inner.submit(self.job, self.payload)
            for event in inner.events():
                end = event
                if event.is_end and stopped.is_set():
                    end = JobEvent("failed", self.job, problem=STOPPED)
                    writer.note(replace(end, kind="stopped"))
                else:
                    writer.note(event)
        finally:
            ended.set()
            inner.cancel()
        return replace(end, where=where)

    def _enter(self) -> None:
        os.environ.update(self.place.variables)
        try:
            os.chdir(self.place.working_directory)
        except OSError as error:
            where = f"on {socket.gethostname()}"
            raise InputError(f"{self.place.working_directory}: not a directory {where}: {error.strerror}") from error

    def _watch(self, request: Path, ended: threading.Event, stopped: threading.Event) -> None:
        while not ended.wait(LOOK_SECONDS):
            if request.exists() and self._inner is not None:
                stopped.set()
                self._inner.ask_to_end()
                return

    def checkpoint(self, *arguments: Any) -> Any:
        """Called by submitit before SLURM takes the node away: save, and come again."""
        from submitit.helpers import DelayedSubmission

        if self._inner is not None:
            self._inner.cancel()
        return DelayedSubmission(replace(self))


def lost(job: str, directory: Path, problem: str) -> JobEvent:
    """The event for a job whose machine did not say how it ended; its status says so too."""
    seen = read_status(directory, job)
    where = seen.where if seen else ""
    event = JobEvent("failed", job, problem=problem, where=where)
    StatusWriter(directory, where=where).note(event)
    return event
