"""Named jobs, the events that they send, and whoever runs them."""

import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpkd.errors import InputError, reason

PROGRESS_SECONDS = 0.2
"""Minimum time between two progress messages of one job."""

OnProgress = Callable[[int, int], None]
"""Steps done and total steps."""

Work = Callable[[Any, OnProgress], None]
"""The function a process runs for a job; must be defined at module level, because it is passed on by its name."""


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
    where: str = ""
    """The machine, where it is not this one."""

    @property
    def is_end(self) -> bool:
        """Whether nothing follows it."""
        return self.kind in ("finished", "failed")


class Executor(ABC):
    """Runs named jobs somewhere and streams their events.

    A job that fails is an event and does not stop the others. A job whose machine is lost starts again on another one,
    so `work` must be able to continue what an earlier attempt left behind.
    """

    def __init__(self, work: Work) -> None:
        """What every job does with its payload."""
        self.work = work

    @abstractmethod
    def submit(self, job: str, payload: Any) -> None:
        """Put a job at the end of the queue; nothing is started before `events`."""

    @abstractmethod
    def events(self) -> Iterator[JobEvent]:
        """Run what was submitted; ends when every job has ended."""

    @abstractmethod
    def cancel(self) -> None:
        """Ask the jobs that still run to save and end, wait for them, and free all resources."""


MakeExecutor = Callable[[Work, Path], Executor]
"""Makes what runs jobs, from what a job does and the directory of their status files."""


def run_jobs(executor: Executor, jobs: Mapping[str, Any], on_event: Callable[[JobEvent], None]) -> None:
    """Run every job once; when the caller is stopped, its jobs save and end first.

    Args:
        executor: where they run.
        jobs: name -> payload.
        on_event: called in this process.
    """
    try:
        for job, payload in jobs.items():
            executor.submit(job, payload)
        for event in executor.events():
            on_event(event)
    finally:
        executor.cancel()


def attempt(job: str, payload: Any, work: Work, send: Callable[[JobEvent], None]) -> JobEvent:
    """Do a job in this process, with at most a few progress events per second; returns how it ended.

    Example:
        >>> attempt("a", 3, lambda payload, on_progress: on_progress(payload, 3), print).kind
        JobEvent(kind='progress', job='a', done=3, total=3, problem='', trace='', where='')
        'finished'
    """
    told = -PROGRESS_SECONDS

    def on_progress(done: int, total: int) -> None:
        nonlocal told
        if done == total or time.monotonic() - told >= PROGRESS_SECONDS:
            told = time.monotonic()
            send(JobEvent("progress", job, done, total))

    try:
        work(payload, on_progress)
    except InputError as error:
        return JobEvent("failed", job, problem=str(error))
    except Exception as error:
        said = reason(error)
        problem = said if said == type(error).__name__ else f"{type(error).__name__}: {said}"
        return JobEvent("failed", job, problem=problem, trace=traceback.format_exc())
    return JobEvent("finished", job)
