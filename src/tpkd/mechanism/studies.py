"""The four mechanism studies by name, and where their records and tables go."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tpkd.config.schema import RunConfig
from tpkd.errors import InputError
from tpkd.files import write_file
from tpkd.mechanism.bench import OnProgress, no_progress
from tpkd.mechanism.blocking import study_blocking
from tpkd.mechanism.certificates import study_certificates
from tpkd.mechanism.continuation import study_continuation
from tpkd.mechanism.exact_head import study_exact_head
from tpkd.mechanism.given import GivenState
from tpkd.mechanism.record import StudyRecord
from tpkd.report.tables import WRITERS, Table

STUDIES_NAME = "studies"
GIVEN_NAME = "given"
STUDIES: dict[str, Callable[..., StudyRecord]] = {
    "blocking": study_blocking,
    "exact-head": study_exact_head,
    "certificates": study_certificates,
    "continuation": study_continuation,
}
NATIVE = ("certificates", "continuation")
"""Studies that make training iterations, for which the state of an optimiser is of use."""


def study_path(name: str, directory: str | Path, *, given: bool = False) -> Path:
    """Where the record of a study is kept in a run directory; those of given states are kept apart from the run's own.

    Example:
        >>> study_path("blocking", "runs/ce-42").as_posix()
        'runs/ce-42/studies/blocking.json'
        >>> study_path("blocking", "runs/ce-42", given=True).as_posix()
        'runs/ce-42/studies/given/blocking.json'
    """
    folder = Path(directory) / STUDIES_NAME
    return (folder / GIVEN_NAME if given else folder) / f"{name}.json"


def run_study(
    name: str,
    config: RunConfig,
    directory: str | Path | None = None,
    *,
    states: Sequence[GivenState] = (),
    out: str | Path | None = None,
    on_progress: OnProgress = no_progress,
) -> StudyRecord:
    """Do a study on the snapshots of a run, or on states given as files, and publish its record.

    Args:
        name: one of `STUDIES`.
        config: the run, as it was trained; for given states, what their student, teacher and data are.
        directory: where it is kept, by default what the configuration says.
        states: files to look at in the place of snapshots; then there need not be a run.
        out: where the record goes, by default what `study_path` says.
        on_progress: called with the parts that are done, and how many there are.

    Raises:
        InputError: the run, its snapshots, the files or the teacher are not as they must be, or the record cannot be
            written.
    """
    if name not in STUDIES:
        raise ValueError(f"name: expected one of {', '.join(STUDIES)}, got {name!r}")
    for state in states:
        if state.optimizer is not None and name not in NATIVE:
            raise InputError(
                f"--optimizer-state {state.name}: expected none, because {name} takes weights alone and makes no "
                "training iteration; leave it out"
            )
    record = STUDIES[name](config, directory, states=states, on_progress=on_progress)
    place = study_path(name, directory or config.directory, given=bool(states))
    write_file(Path(out) if out is not None else place, record.to_json())
    return record


def write_tables(table: Table, record_path: Path) -> list[Path]:
    """Write the table of a study beside its record, as Markdown, CSV and LaTeX; returns the paths."""
    paths = {record_path.with_suffix(f".{suffix}"): write(table) for suffix, write in WRITERS.items()}
    for path, text in paths.items():
        write_file(path, text)
    return list(paths)
