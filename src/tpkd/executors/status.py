"""The status of every job, in a directory: written where a job runs, read from anywhere."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tpkd.errors import InputError
from tpkd.executors.jobs import JobEvent
from tpkd.files import read_parsed, write_file
from tpkd.record import Record

STATUS_NAME = "status"
"""Directory with one file per job."""
CANCEL_NAME = "cancel"
"""A file in it that asks all jobs on other machines to save and end."""

WRITE_SECONDS = 1.0
"""Minimum time between two records of a job's progress."""


@dataclass(frozen=True)
class JobStatus(Record):
    """What is known about a job: `waiting`, `started`, `progress`, `stopped`, `finished` or `failed`."""

    job: str
    kind: str
    where: str
    """The machine."""
    updated: float
    """Seconds since 1970, by the clock of that machine."""
    attempt: int = 1
    """Counts the machines that it ran on, if some were lost."""
    done: int = 0
    total: int = 0
    problem: str = ""
    trace: str = ""

    @property
    def is_running(self) -> bool:
        """Whether a process works on it, or was lost while it did."""
        return self.kind in ("started", "progress")


class StatusWriter:
    """Keeps the status files of a directory current; progress at most once per second and job.

    Example:
        >>> import tempfile
        >>> directory = Path(tempfile.mkdtemp())
        >>> writer = StatusWriter(directory, where="node-1")
        >>> for kind, done in (("started", 0), ("progress", 1), ("finished", 0)):
        ...     writer.note(JobEvent(kind, "ce-42", done, 3))
        >>> [(status.job, status.kind, status.where) for status in read_statuses(directory)]
        [('ce-42', 'finished', 'node-1')]
    """

    def __init__(self, directory: Path, *, where: str) -> None:
        """Write below `directory`, in the name of a machine."""
        self._directory, self._where = directory, where
        self._attempts: dict[str, int] = {}
        self._written: dict[str, float] = {}

    def note(self, event: JobEvent) -> None:
        """Record an event."""
        if event.kind == "progress" and not self._is_due(event.job):
            return
        if event.kind == "started":
            before = read_status(self._directory, event.job)
            # What was never ended by its own process was lost with its machine.
            self._attempts[event.job] = before.attempt + 1 if before and before.is_running else 1
        if event.kind == "progress":
            self._written[event.job] = time.monotonic()
        status = JobStatus(
            event.job,
            event.kind,
            event.where or self._where,
            time.time(),
            self._attempts.get(event.job, 1),
            event.done,
            event.total,
            event.problem,
            event.trace,
        )
        write_file(status_path(self._directory, event.job), status.to_json())

    def _is_due(self, job: str) -> bool:
        """Whether progress is worth a file: some time has passed, and nobody has moved the directory away."""
        recent = time.monotonic() - self._written.get(job, -WRITE_SECONDS) < WRITE_SECONDS
        return not recent and (self._directory / STATUS_NAME).exists()


def status_path(directory: Path, job: str) -> Path:
    """The status file of a job."""
    return directory / STATUS_NAME / f"{job}.json"


def read_status(directory: Path, job: str) -> JobStatus | None:
    """The status of a job, None if there is none."""
    return read_parsed(status_path(directory, job), JobStatus.from_json)


def read_statuses(directory: Path) -> list[JobStatus]:
    """The status of every job of a directory, by name."""
    paths = sorted((directory / STATUS_NAME).glob("*.json"))
    found = (read_parsed(path, JobStatus.from_json) for path in paths)
    return [status for status in found if status is not None]


def announce(directory: Path, jobs: Iterable[str], *, where: str) -> None:
    """Record that jobs wait, and forget an earlier request to cancel."""
    cancel_path(directory).unlink(missing_ok=True)
    writer = StatusWriter(directory, where=where)
    for job in jobs:
        writer.note(JobEvent("waiting", job))


def cancel_path(directory: Path) -> Path:
    """The file that asks all jobs on other machines to end."""
    return directory / STATUS_NAME / CANCEL_NAME


class StatusReader:
    """Turns the status files that other machines write into events, each once.

    Example:
        >>> import tempfile
        >>> directory = Path(tempfile.mkdtemp())
        >>> writer, reader = StatusWriter(directory, where="node-1"), StatusReader(directory, ["a"])
        >>> writer.note(JobEvent("started", "a"))
        >>> [event.kind for event in reader.events()], list(reader.events())
        (['started'], [])
    """

    def __init__(self, directory: Path, jobs: Iterable[str]) -> None:
        """Follow some jobs; what their files say now is old."""
        self._directory = directory
        self._seen = {job: read_status(directory, job) for job in jobs}

    def events(self) -> Iterator[JobEvent]:
        """What happened since the last call; how a job ended is left to whoever started it."""
        for job, seen in self._seen.items():
            try:
                status = read_status(self._directory, job)
            except InputError:  # a network file system may show a file that is being replaced
                continue
            if status is None or status == seen:
                continue
            self._seen[job] = status
            if status.is_running and (seen is None or not seen.is_running or seen.attempt != status.attempt):
                yield JobEvent("started", job, where=status.where)
            if status.kind == "progress":
                yield JobEvent("progress", job, status.done, status.total, where=status.where)
