"""`tpkd compare`: objectives × seeds from one start, on the same data in the same order, with one teacher."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from tpkd.arrays import open_array
from tpkd.compare.cells import checksum_path, collect
from tpkd.compare.grid import STUDENTS_NAME, Grid, GridCell, changed_cells, plan_grid
from tpkd.compare.record import ComparisonRecord
from tpkd.compare.start import LABELS_NAME, TEACHER_NAME, OnStage, prepare
from tpkd.compare.workers import JobEvent, OnProgress, run_jobs
from tpkd.config.loading import Override
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.run import diagnose_files
from tpkd.errors import InputError
from tpkd.files import publish, read_text, reading, sha256
from tpkd.lock import locked
from tpkd.teacher.caching import OnNote
from tpkd.training.directory import TEST_LOGITS_NAME, Hold, read_result, write_text
from tpkd.training.loop import train
from tpkd.training.run import check_names

RECORD_NAME = "comparison.json"
FAILURES_NAME = "failures"

OnEvent = Callable[[JobEvent], None]


@dataclass(frozen=True)
class Watcher:
    """What somebody who watches a comparison is told."""

    on_stage: OnStage = lambda name, done, total: None
    """Something that comes once, such as the teacher's cache: its name, parts done and parts in all."""
    on_plan: Callable[[int, int], None] = lambda finished, waiting: None
    """How many cells are finished already, and how many are to run."""
    on_cell: OnEvent = lambda event: None
    on_note: OnNote = lambda sentence: None
    """A sentence about what all cells share, such as how often the teacher is right."""


def compare(
    grid: Grid, *, processes: int, threads: int = 1, restart_changed: bool = False, watcher: Watcher | None = None
) -> ComparisonRecord:
    """Run every cell of a grid that is not finished, and write and return the record of all of them.

    The same call again runs what failed or is missing, and nothing else. A failed cell is marked and stops no other.

    Args:
        grid: what `plan_grid` resolved.
        processes: cells at a time.
        threads: of each of them.
        restart_changed: put runs of another configuration, teacher or data aside and run their cells anew; without it
            such a grid is refused.
        watcher: told about progress.

    Raises:
        InputError: the grid cannot start, or its directory holds runs of something else.
    """
    watcher = watcher or Watcher()
    for config in grid.by_objective().values():
        check_names(config)
    with locked(grid.directory):
        hold = Hold.of(grid.directory)
        shared = prepare(grid, watcher.on_stage, watcher.on_note)
        changed = changed_cells(grid, shared.fingerprints, shared.data)
        if changed and not restart_changed:
            more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
            first = next(iter(changed.values()))
            raise InputError(f"{first}{more}; take another output, or --restart-changed puts the old runs aside")
        for cell in grid.cells:
            if cell.name in changed:
                _put_aside(grid, cell)
        waiting = [cell for cell in grid.cells if cell.asked and not _is_complete(grid, cell)]
        watcher.on_plan(sum(cell.asked for cell in grid.cells) - len(waiting), len(waiting))
        failures = _run(grid, waiting, processes, threads, watcher.on_cell, hold)
        hold.check()
        record = collect(grid, shared, failures)
        write_text(grid.directory / RECORD_NAME, record.to_json())
        return record


def open_grid(
    path: str | Path, overrides: Sequence[Override], *, methods: list[str] | None = None, seeds: list[int] | None = None
) -> Grid:
    """The grid of a configuration, with what an earlier call has put into its directory."""
    grid = plan_grid(path, overrides, methods=methods, seeds=seeds)
    earlier = read_comparison(grid.directory)
    if earlier is None:
        return grid
    return plan_grid(path, overrides, methods=methods, seeds=seeds, known=(earlier.objectives, earlier.seeds))


def read_comparison(directory: Path) -> ComparisonRecord | None:
    """The record in a directory, None where there is none."""
    path = directory / RECORD_NAME
    if not path.exists():
        return None
    with reading(path):
        return ComparisonRecord.from_json(read_text(path))


def _put_aside(grid: Grid, cell: GridCell) -> None:
    number = 1
    while (aside := cell.directory.with_name(f"{cell.directory.name}.replaced-{number}")).exists():
        number += 1
    cell.directory.rename(aside)
    for path in _kept_files(grid.directory, cell.name):
        path.unlink(missing_ok=True)


def _kept_files(directory: Path, name: str) -> tuple[Path, Path, Path]:
    students = directory / STUDENTS_NAME
    return students / f"{name}.npy", checksum_path(directory, name), students / f"{name}.json"


def _is_complete(grid: Grid, cell: GridCell) -> bool:
    """The logits themselves may be gone: they are large, and everything the record says of them is kept."""
    _, checksum, diagnosis = _kept_files(grid.directory, cell.name)
    diagnosed = diagnosis.exists() or not (grid.directory / TEACHER_NAME).exists()
    return read_result(cell.directory) is not None and checksum.exists() and diagnosed


def _run(
    grid: Grid, cells: list[GridCell], processes: int, threads: int, on_event: OnEvent, hold: Hold
) -> dict[str, str]:
    """Run the cells; returns why some failed."""
    failures: dict[str, str] = {}

    def note(event: JobEvent) -> None:
        if event.kind != "progress":
            hold.check()  # before the next cell would make the directory anew
        if event.kind == "failed":
            failures[event.job] = event.problem
            text = event.trace or event.problem + "\n"
            write_text(grid.directory / FAILURES_NAME / f"{event.job}.txt", text)
        elif event.kind == "finished":
            (grid.directory / FAILURES_NAME / f"{event.job}.txt").unlink(missing_ok=True)
        on_event(event)

    jobs = {cell.name: (cell, grid.directory) for cell in cells}
    run_jobs(jobs, run_cell, processes=processes, threads=threads, on_event=note)
    return failures


def run_cell(job: tuple[GridCell, Path], on_progress: OnProgress) -> None:
    """Train one cell, or what is left of it, and keep its test logits and their diagnosis beside the others."""
    cell, directory = job
    result = train(cell.config, on_step=lambda report: on_progress(report.step, report.num_steps))
    logits, checksum, diagnosis = _kept_files(directory, cell.name)
    _keep_logits(cell.directory / TEST_LOGITS_NAME, logits)
    write_text(checksum, f"{sha256(logits)}  {logits.name}\n")
    teacher, labels = directory / TEACHER_NAME, directory / LABELS_NAME
    if teacher.exists():
        record = diagnose_files(open_inputs([logits], teacher, labels, class_names=result.class_names))
        # Names as seen from the grid: the same grid elsewhere gives the same bytes.
        student = replace(record.students[0], file=f"{STUDENTS_NAME}/{logits.name}")
        write_text(diagnosis, replace(record, teacher=teacher.name, labels=labels.name, students=(student,)).to_json())


def _keep_logits(source: Path, target: Path) -> None:
    array = open_array(source, key="logits")
    logits = torch.cat(list(array.blocks(max(1, array.shape[0])))).numpy()
    try:
        target.parent.mkdir(exist_ok=True)
        with publish(target) as file:
            np.save(file, logits)
    except OSError as error:
        raise InputError(f"{target}: cannot be written: {error.strerror or error}") from error
