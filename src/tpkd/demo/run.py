"""All experiments on scikit-learn's digits: teacher, cache, grid, studies, diagnosis, figures and report."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from tpkd.audit.run import PAGE_NAME, audit_files
from tpkd.audit.sources import find_sources
from tpkd.compare.grid import DEFAULT_SEEDS, STUDENTS_NAME, Grid
from tpkd.compare.record import ComparisonRecord
from tpkd.compare.reporting import FIGURES_NAME, read_records, write_report
from tpkd.compare.run import Watcher, compare, open_grid
from tpkd.compare.start import LABELS_NAME, TEACHER_NAME
from tpkd.config.loading import Override, load_config
from tpkd.config.output import literal_output
from tpkd.config.schema import RunConfig
from tpkd.config.section import DATA_PLACEHOLDER
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.record import DiagnosisRecord
from tpkd.diagnosis.run import diagnose_files
from tpkd.errors import InputError
from tpkd.executors.jobs import JobEvent, OnProgress, run_jobs
from tpkd.executors.local import LocalExecutor
from tpkd.figures.illustrations import draw_illustrations
from tpkd.files import write_file
from tpkd.mechanism.studies import STUDIES, run_study, study_path
from tpkd.training.directory import CONFIG_NAME, STUDENT_NAME, RunResult
from tpkd.training.loop import train

CONFIGS = Path(__file__).parent / "configs"
DIAGNOSED = ("ce", "kd", "tpkd")
"""Students on the diagnosis page, in order."""


@dataclass(frozen=True)
class DemoResult:
    """Results of the demo."""

    teacher: RunResult
    comparison: ComparisonRecord
    violations: int
    """Number of cases in which a study violated a theorem."""
    failed_studies: dict[str, str]
    report: Path
    diagnosis: Path | None
    audit: Path | None
    """The gallery of the same students."""


def run_demo(
    directory: Path,
    *,
    processes: int,
    watcher: Watcher | None = None,
    seeds: Sequence[int] = DEFAULT_SEEDS,
    teacher_overrides: Sequence[Override] = (),
    overrides: Sequence[Override] = (),
) -> DemoResult:
    """Run everything that is not done yet, and write the report.

    Args:
        directory: new, or from an earlier demo; then only missing parts are run.
        processes: number of parallel runs, with one thread each.
        watcher: progress callbacks.
        seeds: seeds of the grid.
        teacher_overrides: for the teacher's run.
        overrides: for the grid, as `load_config` takes them.

    Raises:
        InputError: the directory contains other files or cannot be written.
    """
    watcher, directory = watcher or Watcher(), _one_spelling(directory)
    _check_directory(directory)
    places: list[Override] = [
        ("output", f"{literal_output(directory)}/{{objective}}/seed-{{seed}}"),
        ("teacher.weights", str(directory / "teacher" / STUDENT_NAME)),
        ("teacher.cache", str(directory / "cache")),
    ]
    with _one_thread():
        teacher = _train_teacher(directory, teacher_overrides, watcher)
        grid = open_grid(CONFIGS / "demo.yaml", [*places, *overrides], seeds=list(seeds))
        record = compare(grid, processes=processes, watcher=watcher)
        failed = _study(_studied(grid), processes, watcher)
        if not (directory / FIGURES_NAME).exists():
            draw_illustrations((directory / FIGURES_NAME).parent)
        watcher.on_stage("figures", 1, 1)
        diagnosis = _diagnose(directory, record)
        audit = _audit(directory) if diagnosis else None
        report = write_report(directory)[0]
        watcher.on_stage("report", 1, 1)
    violations = sum(study.violations for study in read_records(directory).studies.values())
    return DemoResult(teacher, record, violations, failed, report, diagnosis, audit)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Temporarily use one torch thread: networks this small are slower with more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _one_spelling(directory: Path) -> Path:
    """Normalize the path, because runs are bound to the paths in their configurations."""
    whole, here = directory.resolve(), Path.cwd()
    return whole.relative_to(here) if whole.is_relative_to(here) else whole


def _check_directory(directory: Path) -> None:
    if DATA_PLACEHOLDER in str(directory):  # it would be substituted in the paths of weights and caches
        raise InputError(f"{directory}: expected a directory without {DATA_PLACEHOLDER} in its name")
    if not directory.exists():
        return
    ours = (directory / "teacher" / CONFIG_NAME).exists()
    foreign = not directory.is_dir() or any(entry.name != "teacher" for entry in directory.iterdir())
    if foreign and not ours:
        raise InputError(f"{directory}: expected a new directory or one that an earlier demo made, found other files")


def _train_teacher(directory: Path, overrides: Sequence[Override], watcher: Watcher) -> RunResult:
    place: Override = ("output", literal_output(directory / "teacher"))
    config = load_config(CONFIGS / "demo-teacher.yaml", [place, *overrides])
    result = train(config, on_step=lambda report: watcher.on_stage("teacher", report.step, report.num_steps))
    watcher.on_stage("teacher", result.steps, result.steps)
    return result


def _studied(grid: Grid) -> RunConfig:
    """The run whose snapshots are studied: CE, first seed."""
    return next(cell.config for cell in grid.cells if cell.objective == "ce")


def _study(config: RunConfig, processes: int, watcher: Watcher) -> dict[str, str]:
    """Run the studies that have no record yet; returns the reason for each failure."""
    failed: dict[str, str] = {}

    def note(event: JobEvent) -> None:
        if event.kind == "failed":
            failed[event.job] = event.problem
        done, total = (event.done, event.total) if event.kind in ("started", "progress") else (1, 1)
        watcher.on_stage(f"study {event.job}", done, max(total, 1))

    missing = {name: (name, config) for name in STUDIES if not study_path(name, config.directory).exists()}
    run_jobs(LocalExecutor(study_job, processes=processes), missing, note)
    return failed


def study_job(job: tuple[str, RunConfig], on_progress: OnProgress) -> None:
    """Run one study in its own process."""
    name, config = job
    run_study(name, config, on_progress=on_progress)


def _diagnose(directory: Path, record: ComparisonRecord) -> Path | None:
    """Write the diagnosis page of the first seed's students; None if one of the runs is missing."""
    seed = record.seeds[0]
    students = [directory / STUDENTS_NAME / f"{objective}-{seed}.npy" for objective in DIAGNOSED]
    if not all(path.exists() for path in students):
        return None
    from tpkd.diagnosis.page import diagnosis_page

    found = diagnose_files(open_inputs(students, directory / TEACHER_NAME, directory / LABELS_NAME))
    page = directory / "diagnosis.html"
    write_file(page, diagnosis_page(_seen_from_here(found)))
    return page


def _audit(directory: Path) -> Path:
    """Write the gallery of the students that are diagnosed."""
    audit_files(find_sources([directory]), directory / "audit")
    return directory / "audit" / PAGE_NAME


def _seen_from_here(record: DiagnosisRecord) -> DiagnosisRecord:
    """Paths relative to the demo directory, so that a demo elsewhere writes the same page."""
    students = tuple(replace(student, file=f"{STUDENTS_NAME}/{Path(student.file).name}") for student in record.students)
    return replace(record, teacher=TEACHER_NAME, labels=LABELS_NAME, students=students)
