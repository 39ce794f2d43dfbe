"""The four mechanism studies by name, and where their records go."""

from collections.abc import Callable
from pathlib import Path

from tpkd.config.schema import RunConfig
from tpkd.files import write_file
from tpkd.mechanism.bench import OnProgress, no_progress
from tpkd.mechanism.blocking import study_blocking
from tpkd.mechanism.certificates import study_certificates
from tpkd.mechanism.continuation import study_continuation
from tpkd.mechanism.exact_head import study_exact_head
from tpkd.mechanism.record import StudyRecord

STUDIES_NAME = "studies"
STUDIES: dict[str, Callable[..., StudyRecord]] = {
    "blocking": study_blocking,
    "exact-head": study_exact_head,
    "certificates": study_certificates,
    "continuation": study_continuation,
}


def study_path(name: str, directory: str | Path) -> Path:
    """Where the record of a study is kept in a run directory.

    Example:
        >>> study_path("blocking", "runs/ce-42").as_posix()
        'runs/ce-42/studies/blocking.json'
    """
    return Path(directory) / STUDIES_NAME / f"{name}.json"


def run_study(
    name: str,
    config: RunConfig,
    directory: str | Path | None = None,
    *,
    out: str | Path | None = None,
    on_progress: OnProgress = no_progress,
) -> StudyRecord:
    """Do a study on the snapshots of a run and publish its record.

    Args:
        name: one of `STUDIES`.
        config: the run, as it was trained.
        directory: where it is kept, by default what the configuration says.
        out: where the record goes, by default `studies/NAME.json` in the run directory.
        on_progress: called with the parts that are done, and how many there are.

    Raises:
        InputError: the run, its snapshots or its teacher are not as they must be, or the record cannot be written.
    """
    if name not in STUDIES:
        raise ValueError(f"name: expected one of {', '.join(STUDIES)}, got {name!r}")
    record = STUDIES[name](config, directory, on_progress=on_progress)
    write_file(Path(out) if out is not None else study_path(name, directory or config.directory), record.to_json())
    return record
