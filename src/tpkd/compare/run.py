"""`tpkd compare`: objectives × seeds from one start, on the same data in the same order, with one teacher."""

import json
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tpkd.compare.cells import is_complete, put_aside, read_cell, run_cell
from tpkd.compare.grid import Grid, GridCell, changed_cells, plan_grid
from tpkd.compare.owner.answers import TEACHER_STEM, keep_missing, keep_scored
from tpkd.compare.owner.networks import keep_networks
from tpkd.compare.protocol import paper_protocol, resolved_settings
from tpkd.compare.record import Cell, ComparisonRecord, EnvironmentGroup, IdenticalLogits, MethodSettings
from tpkd.compare.start import LABELS_NAME, TEACHER_NAME, OnStage, Shared, prepare
from tpkd.compare.statistics import CONFIDENCE_LEVEL, summarize_methods
from tpkd.compare.variants import named_variants, own_overrides
from tpkd.config.loading import Override
from tpkd.config.schema import RunConfig
from tpkd.errors import InputError
from tpkd.executors.jobs import JobEvent, MakeExecutor, run_jobs
from tpkd.executors.local import LocalExecutor
from tpkd.executors.status import StatusWriter, announce
from tpkd.files import read_parsed, write_file
from tpkd.lock import Hold, locked
from tpkd.objectives import describe
from tpkd.teacher.caching import OnNote
from tpkd.training.directory import ENVIRONMENT_NAME, FREE_KEYS, Environment, flat_items
from tpkd.training.run import check_names

RECORD_NAME = "comparison.json"
FAILURES_NAME = "failures"
_NOT_SHARED = {"objective", "seed", *FREE_KEYS}

OnEvent = Callable[[JobEvent], None]
AnyRecord = TypeVar("AnyRecord")


@dataclass(frozen=True)
class Watcher:
    """Callbacks that report the progress of a comparison."""

    on_stage: OnStage = lambda name, done, total: None
    """A one-time stage such as building the teacher's cache: its name, parts done, parts in total."""
    on_plan: Callable[[int, int], None] = lambda finished, waiting: None
    """Number of cells already finished, and number of cells to run."""
    on_cell: OnEvent = lambda event: None
    on_note: OnNote = lambda sentence: None
    """A sentence about what all cells share, such as the teacher's accuracy."""


def compare(
    grid: Grid,
    *,
    processes: int = 1,
    executor: MakeExecutor | None = None,
    restart_changed: bool = False,
    watcher: Watcher | None = None,
) -> ComparisonRecord:
    """Run every unfinished cell of a grid, then write and return the record of all cells.

    Calling it again runs only cells that failed or are missing. A failed cell is marked and does not stop the others.
    `work_through` has the arguments.

    Raises:
        InputError: the grid cannot start, or its directory holds other runs.
    """

    def finish(shared: Shared, failures: dict[str, str]) -> ComparisonRecord:
        record = collect(grid, shared, failures)
        write_file(grid.directory / RECORD_NAME, record.to_json())
        _keep_for_report(grid, shared, record)
        return record

    options: dict[str, Any] = {"executor": executor, "restart_changed": restart_changed, "watcher": watcher}
    return work_through(grid, finish, processes=processes, **options)


def work_through(
    grid: Grid,
    finish: Callable[[Shared, dict[str, str]], AnyRecord],
    *,
    processes: int = 1,
    executor: MakeExecutor | None = None,
    restart_changed: bool = False,
    watcher: Watcher | None = None,
) -> AnyRecord:
    """Run every unfinished cell of a grid or a sweep, while its directory is held.

    Args:
        grid: what `plan_grid` or `plan_sweep` resolved.
        finish: called at the end, with what the cells share and the reason for each failure; makes the record.
        processes: number of cells that run at the same time, on this machine.
        executor: where cells run instead.
        restart_changed: set runs with a different configuration, teacher or data aside and rerun their cells; without
            it such a grid is refused.
        watcher: progress callbacks.

    Raises:
        InputError: the grid cannot start, or its directory holds other runs.
    """
    watcher = watcher or Watcher()
    for config in grid.by_variant().values():
        check_names(config)
    with locked(grid.directory) as hold:
        shared = prepare(grid, watcher.on_stage, watcher.on_note)
        changed = changed_cells(grid, shared.fingerprints, shared.data)
        if changed and not restart_changed:
            more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
            first = next(iter(changed.values()))
            raise InputError(f"{first}{more}; take another output, or --restart-changed puts the old runs aside")
        for cell in grid.cells:
            if cell.name in changed:
                put_aside(grid, cell)
        waiting = [cell for cell in grid.cells if cell.asked and not is_complete(grid, cell)]
        watcher.on_plan(sum(cell.asked for cell in grid.cells) - len(waiting), len(waiting))
        make = executor or (lambda work, directory: LocalExecutor(work, processes=processes))
        failures = _run(grid, waiting, make, watcher.on_cell, hold) if waiting else {}
        hold.check()
        return finish(shared, failures)


def _keep_for_report(grid: Grid, shared: Shared, record: ComparisonRecord) -> None:
    """Answers of the teacher and of older cells, and the cost of networks: a report cannot compute these itself."""
    keep_missing(grid.directory, record.cells)
    teacher, labels = grid.directory / TEACHER_NAME, grid.directory / LABELS_NAME
    if shared.teacher is not None and teacher.exists():
        keep_scored(teacher, labels, grid.directory / TEACHER_STEM)
    keep_networks(grid, shared.start, shared.teacher)


def open_grid(
    path: str | Path, overrides: Sequence[Override], *, methods: list[str] | None = None, seeds: list[int] | None = None
) -> Grid:
    """The grid of a configuration, including cells that earlier calls created in its directory."""
    grid = plan_grid(path, overrides, methods=methods, seeds=seeds)
    earlier = read_comparison(grid.directory)
    if earlier is None:
        return grid
    return plan_grid(path, overrides, methods=methods, seeds=seeds, known=(earlier.objectives, earlier.seeds))


def read_comparison(directory: Path) -> ComparisonRecord | None:
    """The record in a directory, None where there is none."""
    return read_parsed(directory / RECORD_NAME, ComparisonRecord.from_json)


def _run(grid: Grid, cells: list[GridCell], make: MakeExecutor, on_event: OnEvent, hold: Hold) -> dict[str, str]:
    """Run the cells; returns the reason for each failure."""
    failures: dict[str, str] = {}
    jobs = {cell.name: (cell, grid.directory) for cell in cells}
    executor = make(run_cell, grid.directory)
    announce(grid.directory, jobs, where=socket.gethostname())
    status = StatusWriter(grid.directory, where=socket.gethostname())

    def note(event: JobEvent) -> None:
        if event.kind != "progress":
            hold.check()  # before the next cell would recreate the directory
        if event.kind == "failed":
            failures[event.job] = event.problem
            text = event.trace or event.problem + "\n"
            write_file(grid.directory / FAILURES_NAME / f"{event.job}.txt", text)
        elif event.kind == "finished":
            (grid.directory / FAILURES_NAME / f"{event.job}.txt").unlink(missing_ok=True)
        if not event.where:  # elsewhere, the job's own machine has written it
            status.note(event)
        on_event(event)

    run_jobs(executor, jobs, note)
    return failures


def collect(grid: Grid, shared: Shared | None, failures: dict[str, str]) -> ComparisonRecord:
    """Read every cell of a grid; unfinished cells are marked as failed or missing.

    Args:
        grid: whose cells.
        shared: what the cells start from; None if not available.
        failures: cell -> reason for its failure.
    """
    cells = tuple(read_cell(grid, cell, failures.get(cell.name)) for cell in grid.cells)
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
        protocol=_protocol(grid.base),
        settings=tuple(_settings(config) for config in configs.values()),
        cells=cells,
        methods=summarize_methods(cells, grid.objectives),
        identical=_identical(cells),
        environments=_environments(grid),
        selection=grid.base.selection,
        variants=named_variants(grid.base.variants, grid.objectives),
        starts=shared.starts if shared else (),
    )


def _protocol(base: RunConfig) -> dict[str, Any]:
    """What all cells share; seeds and probes that follow the run's seed are those of a cell."""
    own = {f"{section}.seed" for section in base.by_seed} | ({"student.probe_file"} if base.by_seed else set())
    plain = flat_items("", base.model_dump(mode="json", exclude=_NOT_SHARED))
    return {key: value for key, value in plain if key not in own}


def _settings(config: RunConfig) -> MethodSettings:
    reconstruction = {method.name: method.reconstruction for method in describe()}[config.objective.name]
    optimizer = config.optimizer.model_dump(mode="json")
    settings: dict[str, Any] = json.loads(json.dumps(resolved_settings(config)))  # tuples become lists, as in a file
    return MethodSettings(config.objective.row, settings, optimizer, own_overrides(config), reconstruction)


def _identical(cells: Iterable[Cell]) -> tuple[IdenticalLogits, ...]:
    """Groups of two or more objectives whose test logits are identical for a seed."""
    groups: dict[tuple[int, str], list[str]] = defaultdict(list)
    for cell in cells:
        if cell.logits_sha256 is not None:
            groups[cell.seed, cell.logits_sha256].append(cell.objective)
    found = [IdenticalLogits(seed, tuple(names)) for (seed, _), names in groups.items() if len(names) > 1]
    return tuple(sorted(found, key=lambda group: (group.seed, group.objectives)))


def _environments(grid: Grid) -> tuple[EnvironmentGroup, ...]:
    groups: dict[str, tuple[Environment, list[str]]] = {}
    for cell in grid.cells:
        found = read_parsed(cell.directory / ENVIRONMENT_NAME, Environment.from_json)
        if found is not None:
            key = json.dumps([found.python, found.platform, found.device, found.libraries], sort_keys=True)
            groups.setdefault(key, (found, []))[1].append(cell.name)
    return tuple(
        EnvironmentGroup(tuple(cells), found.python, found.platform, found.device, found.libraries)
        for found, cells in groups.values()
    )
