"""From run directories to the record of a comparison."""

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tpkd.compare.grid import STUDENTS_NAME, Grid, GridCell
from tpkd.compare.protocol import paper_protocol, resolved_settings
from tpkd.compare.record import (
    Cell,
    CellCurves,
    ComparisonRecord,
    EnvironmentGroup,
    FinalState,
    IdenticalLogits,
    MethodSettings,
)
from tpkd.compare.start import Shared
from tpkd.compare.statistics import CONFIDENCE_LEVEL, summarize_methods
from tpkd.config.schema import RunConfig
from tpkd.diagnosis.record import DiagnosisRecord
from tpkd.errors import InputError
from tpkd.files import read_lines, read_text, reading
from tpkd.objectives import describe
from tpkd.training.directory import ENVIRONMENT_NAME, FREE_KEYS, Environment, flat_items, read_result
from tpkd.training.log import METRICS_NAME

_NOT_SHARED = {"objective", "seed", *FREE_KEYS}
_CURVES = ("label_loss", "conditional_loss", "blocked_share")


def collect(grid: Grid, shared: Shared | None, failures: dict[str, str]) -> ComparisonRecord:
    """Read every cell of a grid; what is not finished is marked as failed or missing.

    Args:
        grid: whose cells.
        shared: what they start from; None where it is not at hand.
        failures: cell -> why it failed.
    """
    cells = tuple(_cell(grid, cell, failures.get(cell.name)) for cell in grid.cells)
    configs = grid.by_objective()
    return ComparisonRecord(
        name=grid.name,
        confidence_level=CONFIDENCE_LEVEL,
        objectives=grid.objectives,
        seeds=grid.seeds,
        data=shared.data if shared else None,
        start=shared.start if shared else None,
        teacher=shared.teacher if shared else None,
        paper=paper_protocol(configs, grid.seeds_by_objective()),
        protocol=dict(flat_items("", grid.base.model_dump(mode="json", exclude=_NOT_SHARED))),
        settings=tuple(_settings(config) for config in configs.values()),
        cells=cells,
        methods=summarize_methods(cells, grid.objectives),
        identical=_identical(cells),
        environments=_environments(grid),
    )


def _settings(config: RunConfig) -> MethodSettings:
    name = config.objective.name
    reconstruction = {method.name: method.reconstruction for method in describe()}[name]
    own = config.methods.get(name, {})
    optimizer = config.optimizer.model_dump(mode="json")
    settings: dict[str, Any] = json.loads(json.dumps(resolved_settings(config)))  # tuples as a file has them
    return MethodSettings(name, settings, optimizer, own, reconstruction)


def _cell(grid: Grid, cell: GridCell, problem: str | None) -> Cell:
    result = read_result(cell.directory)
    if problem is not None or result is None:
        status = "missing" if problem is None else "failed"
        where = _relative(cell.directory, grid.directory)
        return Cell(cell.objective, cell.seed, where, status, problem, *[None] * 11)
    selection, curves = _metrics(cell.directory / METRICS_NAME)
    return Cell(
        objective=cell.objective,
        seed=cell.seed,
        directory=_relative(cell.directory, grid.directory),
        status="finished",
        problem=None,
        accuracy=result.accuracy,
        label_loss=result.label_loss,
        steps=result.steps,
        samples=result.samples,
        skipped_steps=result.skipped_steps,
        seconds=result.seconds,
        student_fingerprint=result.student_fingerprint,
        logits_sha256=_logits_sha256(grid.directory, cell.name),
        selection_rates=selection,
        curves=curves,
        final=_final(grid.directory / STUDENTS_NAME / f"{cell.name}.json"),
    )


def checksum_path(directory: Path, name: str) -> Path:
    """Where the SHA-256 of a cell's test logits is kept, as `sha256sum --check` takes it."""
    return directory / STUDENTS_NAME / f"{name}.sha256"


def _logits_sha256(directory: Path, name: str) -> str | None:
    path = checksum_path(directory, name)
    if not path.exists():
        return None
    words = read_text(path, 1 << 16).split()
    if not words:
        raise InputError(f"{path}: expected a SHA-256, found an empty file")
    return words[0]


def _relative(path: Path, start: Path) -> str:
    return Path(os.path.relpath(path, start)).as_posix()


def _metrics(path: Path) -> tuple[tuple[float, ...] | None, CellCurves | None]:
    """Selection rates by epoch, and the monitor's means by epoch."""
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
    return tuple(selection) or None, curves


def _means(rows: list[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(sum(column) / len(rows) for column in zip(*rows, strict=True))


def _final(path: Path) -> FinalState | None:
    if not path.exists():
        return None
    with reading(path):
        student = DiagnosisRecord.from_json(read_text(path)).students[0]
    return FinalState(
        blocked_examples=student.blocked_examples,
        blocked_share=student.blocked_share,
        conditional_loss=student.all["conditional_loss"],
        conditional_loss_blocked=student.blocked["conditional_loss"],
        transfer_cost=student.all["transfer_cost"],
        imitation_loss=student.all["imitation_loss"],
        label_loss=student.all["label_loss"],
    )


def _identical(cells: Iterable[Cell]) -> tuple[IdenticalLogits, ...]:
    """Groups of two and more objectives whose test logits have the same bytes for a seed."""
    groups: dict[tuple[int, str], list[str]] = defaultdict(list)
    for cell in cells:
        if cell.logits_sha256 is not None:
            groups[cell.seed, cell.logits_sha256].append(cell.objective)
    found = [IdenticalLogits(seed, tuple(names)) for (seed, _), names in groups.items() if len(names) > 1]
    return tuple(sorted(found, key=lambda group: (group.seed, group.objectives)))


def _environments(grid: Grid) -> tuple[EnvironmentGroup, ...]:
    groups: dict[str, tuple[Environment, list[str]]] = {}
    for cell in grid.cells:
        path = cell.directory / ENVIRONMENT_NAME
        if path.exists():
            with reading(path):
                found = Environment.from_json(read_text(path))
            key = json.dumps([found.python, found.platform, found.device, found.libraries], sort_keys=True)
            groups.setdefault(key, (found, []))[1].append(cell.name)
    return tuple(
        EnvironmentGroup(tuple(cells), found.python, found.platform, found.device, found.libraries)
        for found, cells in groups.values()
    )
