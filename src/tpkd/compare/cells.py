"""One cell of a grid: trained in its own process, stored next to the others, and read into the record."""

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tpkd.arrays import open_array
from tpkd.compare.grid import STUDENTS_NAME, Grid, GridCell
from tpkd.compare.owner.answers import ANSWERS_NAME, keep_scored
from tpkd.compare.record import Cell, CellCurves, CellProgress, FinalState
from tpkd.compare.start import LABELS_NAME, TEACHER_NAME, save_array
from tpkd.diagnosis.inputs import open_inputs
from tpkd.diagnosis.record import DiagnosisRecord
from tpkd.diagnosis.run import diagnose_files
from tpkd.errors import InputError
from tpkd.executors.jobs import OnProgress
from tpkd.files import first_free, read_lines, read_parsed, read_text, reading, sha256, write_file
from tpkd.lock import wait_until_free
from tpkd.quality.answers import answer_files
from tpkd.training.directory import TEST_LOGITS_NAME, read_result
from tpkd.training.log import METRICS_NAME
from tpkd.training.loop import train

_CURVES = ("label_loss", "conditional_loss", "blocked_share")


def run_cell(job: tuple[GridCell, Path], on_progress: OnProgress) -> None:
    """Train or resume one cell, then store its test logits, if it has any, and their diagnosis next to the others."""
    cell, directory = job
    wait_until_free(cell.directory)  # the process of an earlier attempt may be about to end
    result = train(cell.config, on_step=lambda report: on_progress(report.step, report.num_steps))
    if not cell.config.evaluation.test:
        return
    kept, checksum, diagnosis = kept_files(directory, cell.name)
    array = open_array(cell.directory / TEST_LOGITS_NAME, key="logits")
    logits = torch.cat(list(array.blocks(max(1, array.shape[0])))).numpy()
    save_array(kept, logits)
    write_file(checksum, f"{sha256(kept)}  {kept.name}\n")
    teacher, labels = directory / TEACHER_NAME, directory / LABELS_NAME
    keep_scored(kept, labels, directory / ANSWERS_NAME / cell.name)
    if teacher.exists():
        record = diagnose_files(open_inputs([kept], teacher, labels, class_names=result.class_names))
        # Paths relative to the grid: the same grid in another directory gives the same bytes.
        student = replace(record.students[0], file=f"{STUDENTS_NAME}/{kept.name}")
        write_file(diagnosis, replace(record, teacher=teacher.name, labels=labels.name, students=(student,)).to_json())


def kept_files(directory: Path, name: str) -> tuple[Path, Path, Path]:
    """Paths of a cell's test logits, of their SHA-256 (for `sha256sum --check`) and of their diagnosis."""
    students = directory / STUDENTS_NAME
    return students / f"{name}.npy", students / f"{name}.sha256", students / f"{name}.json"


def is_complete(grid: Grid, cell: GridCell) -> bool:
    """Whether a cell needs no further work.

    The logits may have been deleted: they are large, and everything the record needs from them is stored separately.
    """
    if read_result(cell.directory) is None:
        return False
    _, checksum, diagnosis = kept_files(grid.directory, cell.name)
    diagnosed = diagnosis.exists() or not (grid.directory / TEACHER_NAME).exists()
    return not cell.config.evaluation.test or (checksum.exists() and diagnosed)


def put_aside(grid: Grid, cell: GridCell) -> None:
    """Rename a cell's run directory and delete the files stored for it."""
    cell.directory.rename(first_free(f"{cell.directory}.replaced"))
    scored = answer_files(grid.directory / ANSWERS_NAME / cell.name)
    for path in (*kept_files(grid.directory, cell.name), *scored):
        path.unlink(missing_ok=True)


def read_cell(grid: Grid, cell: GridCell, problem: str | None) -> Cell:
    """The result of a cell; an unfinished one is marked as failed if a problem is known, otherwise as missing."""
    result = read_result(cell.directory)
    status = "failed" if problem is not None else "missing" if result is None else "finished"
    where = Path(os.path.relpath(cell.directory, grid.directory)).as_posix()
    found = Cell(cell.objective, cell.seed, where, status, problem)
    if problem is not None or result is None:
        return found
    _, checksum, diagnosis = kept_files(grid.directory, cell.name)
    selection, curves, progress = read_metrics(cell.directory / METRICS_NAME)
    return replace(
        found,
        accuracy=result.accuracy,
        label_loss=result.label_loss,
        steps=result.steps,
        samples=result.samples,
        skipped_steps=result.skipped_steps,
        seconds=result.seconds,
        student_fingerprint=result.student_fingerprint,
        logits_sha256=_logits_sha256(checksum),
        selection_rates=selection,
        curves=curves,
        final=read_final(diagnosis),
        progress=progress,
        validation_accuracy=result.validation_accuracy,
        validation_label_loss=result.validation_label_loss,
        selected_epoch=result.selected_epoch,
    )


def _logits_sha256(path: Path) -> str | None:
    if not path.exists():
        return None
    words = read_text(path, 1 << 16).split()
    if not words:
        raise InputError(f"{path}: expected a SHA-256, found an empty file")
    return words[0]


def read_metrics(path: Path) -> tuple[tuple[float, ...] | None, CellCurves | None, CellProgress | None]:
    """Selection rates, monitor means, and losses and accuracies, per epoch."""
    selection: list[float] = []
    seen: dict[int, list[tuple[float, ...]]] = defaultdict(list)
    with reading(path):
        lines = [json.loads(line) for line in read_lines(path)]
    for line in lines:
        if line["kind"] == "epoch" and "teacher_selection_rate" in line:
            selection.append(line["teacher_selection_rate"])
        if line["kind"] == "monitor" and None not in (values := tuple(line[name] for name in _CURVES)):
            seen[line["epoch"]].append(values)
    curves = None
    if seen:
        means = {epoch: _means(rows) for epoch, rows in sorted(seen.items())}
        curves = CellCurves(tuple(means), *zip(*means.values(), strict=True))
    return tuple(selection) or None, curves, _progress(lines)


def _progress(lines: Iterable[Mapping[str, Any]]) -> CellProgress | None:
    series = [
        {line["epoch"]: line[name] for line in lines if line["kind"] == kind and line.get(name) is not None}
        for kind, name in (("epoch", "loss"), ("evaluation", "accuracy"), ("validation", "accuracy"))
    ]
    if not any(series):
        return None
    return CellProgress(*(tuple(part) for curve in series for part in (curve.keys(), curve.values())))


def _means(rows: list[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(sum(column) / len(rows) for column in zip(*rows, strict=True))


def read_final(path: Path) -> FinalState | None:
    """The final student of a cell, from its diagnosis; None without one."""
    record = read_parsed(path, DiagnosisRecord.from_json)
    if record is None:
        return None
    student = record.students[0]
    return FinalState(
        blocked_examples=student.blocked_examples,
        blocked_share=student.blocked_share,
        conditional_loss=student.all["conditional_loss"],
        conditional_loss_blocked=student.blocked["conditional_loss"],
        transfer_cost=student.all["transfer_cost"],
        imitation_loss=student.all["imitation_loss"],
        label_loss=student.all["label_loss"],
    )
