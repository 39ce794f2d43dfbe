"""The runs below a directory: where they are, what they are called, and what state each is in."""

import os
from collections.abc import Iterator
from pathlib import Path

from tpkd.errors import InputError
from tpkd.executors.status import STATUS_NAME, JobStatus, read_statuses
from tpkd.training.directory import ABANDONED_NAME, CONFIG_NAME, RESULT_NAME, RUN_NAMES
from tpkd.training.log import METRICS_NAME

MAX_DEPTH = 4
"""Folders between a grid and its cells."""
_SKIPPED = frozenset({*RUN_NAMES, STATUS_NAME})


def is_run(directory: Path) -> bool:
    """Whether a directory holds a run of its own."""
    return any((directory / name).is_file() for name in (METRICS_NAME, CONFIG_NAME))


def find_runs(directory: Path) -> dict[str, Path]:
    """The runs below a directory by their names, which are their paths from there; a run itself has its own name.

    Raises:
        InputError: there is no run, and no grid that is about to start any.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp())
        >>> (place / "tpkd-42").mkdir(); (place / "tpkd-42" / "metrics.jsonl").touch()
        >>> list(find_runs(place)), list(find_runs(place / "tpkd-42"))
        (['tpkd-42'], ['tpkd-42'])
    """
    if not directory.is_dir():
        raise InputError(f"{directory}: expected the directory of a run or a grid, found no directory")
    if is_run(directory):
        return {directory.resolve().name: directory}
    found = {path.relative_to(directory).as_posix(): path for path in _runs_below(directory, MAX_DEPTH)}
    if not found and not (directory / STATUS_NAME).is_dir():
        raise InputError(f"{directory}: expected the directory of a run or a grid, found no {METRICS_NAME} in it")
    return dict(sorted(found.items()))


def _runs_below(directory: Path, depth: int) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:  # removed, or not ours to read
        return
    for entry in entries:
        aside = entry.name in _SKIPPED or entry.name.startswith((".", f"{ABANDONED_NAME}-"))
        if aside or not entry.is_dir(follow_symlinks=False):
            continue
        path = Path(entry.path)
        if is_run(path):
            yield path
        elif depth > 1:
            yield from _runs_below(path, depth - 1)


def statuses_of(directory: Path) -> dict[str, JobStatus]:
    """What a grid's processes say about its cells, by their names; nothing where there is no grid."""
    try:
        return {status.job: status for status in read_statuses(directory)}
    except InputError:  # a file of another version or one that is being replaced; the cells speak for themselves
        return {}


def status_of(name: str, statuses: dict[str, JobStatus]) -> JobStatus | None:
    """The status of a cell: they are named after objective and seed, and cells after their folders.

    Example:
        >>> status_of("tpkd/42", {"tpkd-42": JobStatus("tpkd-42", "progress", "node-1", 0.0)}).is_running
        True
    """
    return statuses.get(name) or statuses.get(name.replace("/", "-")) or statuses.get(name.rpartition("/")[2])


def state_of(path: Path | None, status: JobStatus | None) -> str:
    """In a word what a cell is doing. A result counts more than what a process said before it was lost."""
    if path is not None and (path / RESULT_NAME).is_file():
        return "finished"
    if status is None:
        return "not finished"
    return "running" if status.is_running else status.kind
