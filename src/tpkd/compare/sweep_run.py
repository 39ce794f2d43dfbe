"""`tpkd compare --sweep`: runs the cells of a sweep and compares their settings on the validation part."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tpkd.compare.cells import read_cell
from tpkd.compare.record import Cell
from tpkd.compare.reporting import catalogue
from tpkd.compare.run import Watcher, work_through
from tpkd.compare.start import Shared
from tpkd.compare.sweep import SWEEP_NAME, Sweep, Trial, plan_sweep
from tpkd.compare.sweep_record import SWEEP_RECORD_NAME, SweepRecord, TrialCell, TrialSummary
from tpkd.compare.sweep_tables import sweep_files
from tpkd.config.loading import Override
from tpkd.config.schema import RunConfig
from tpkd.executors.jobs import MakeExecutor
from tpkd.files import read_parsed, write_file


def open_sweep(
    path: str | Path,
    overrides: Sequence[Override],
    sweeps: Sequence[str],
    *,
    methods: list[str] | None = None,
    seeds: list[int] | None = None,
) -> Sweep:
    """The sweep of a configuration, including what earlier calls started in its directory."""
    chosen: dict[str, Any] = {"sweeps": sweeps, "methods": methods, "seeds": seeds}
    sweep = plan_sweep(path, overrides, **chosen)
    earlier = read_sweep(sweep.home)
    if earlier is None:
        return sweep
    known = [(Trial(trial.objective, trial.settings), cell.seed) for trial in earlier.trials for cell in trial.cells]
    return plan_sweep(path, overrides, **chosen, known=known)


def read_sweep(directory: Path) -> SweepRecord | None:
    """The record of a sweep in the directory of a comparison, None where there is none."""
    return read_parsed(directory / SWEEP_RECORD_NAME, SweepRecord.from_json)


def run_sweep(
    sweep: Sweep,
    *,
    processes: int = 1,
    executor: MakeExecutor | None = None,
    restart_changed: bool = False,
    watcher: Watcher | None = None,
) -> SweepRecord:
    """Run every unfinished cell of a sweep; then write the record and the table of all of them.

    Calling it again runs only cells that failed or are missing. `work_through` has the arguments.

    Raises:
        InputError: the sweep cannot start, for example without a validation part, or its directory holds other runs.
    """

    def finish(shared: Shared, failures: dict[str, str]) -> SweepRecord:
        record = collect_sweep(sweep, shared, failures)
        for name, text in {SWEEP_RECORD_NAME: record.to_json(), **sweep_files(record, catalogue().title)}.items():
            write_file(sweep.home / name, text)
        return record

    options: dict[str, Any] = {"executor": executor, "restart_changed": restart_changed, "watcher": watcher}
    return work_through(sweep.grid, finish, processes=processes, **options)


def collect_sweep(sweep: Sweep, shared: Shared, failures: dict[str, str]) -> SweepRecord:
    """Read every cell of a sweep; unfinished cells are marked as failed or missing."""
    cells: dict[tuple[str, str], list[TrialCell]] = {}
    for cell in sweep.grid.cells:
        found = read_cell(sweep.grid, cell, failures.get(cell.name))
        cells.setdefault((cell.objective, cell.variant), []).append(_trial_cell(found))
    trials = [
        summarize_trial(trial, sorted(cells[trial.objective, trial.variant], key=lambda cell: cell.seed))
        for trial in sweep.trials
    ]
    return SweepRecord(
        name=sweep.grid.name,
        keys=sweep.keys,
        seeds=sweep.grid.seeds,
        data=shared.data,
        start=shared.start,
        teacher=shared.teacher,
        selection=sweep.grid.base.selection,
        methods=_overrides(sweep.grid.base),
        trials=mark_best(trials),
    )


def _overrides(base: RunConfig) -> dict[str, dict[str, Any]]:
    """What the configuration has for single objectives; settings of its own objective are such an override too."""
    own = base.objective
    if not own.settings:
        return base.methods
    return {**base.methods, own.name: {"objective.settings": own.settings, **base.methods.get(own.name, {})}}


def _trial_cell(cell: Cell) -> TrialCell:
    return TrialCell(
        seed=cell.seed,
        directory=f"{SWEEP_NAME}/{cell.directory}",
        status=cell.status,
        problem=cell.problem,
        accuracy=cell.validation_accuracy,
        label_loss=cell.validation_label_loss,
        selected_epoch=cell.selected_epoch,
        seconds=cell.seconds,
    )


def summarize_trial(trial: Trial, cells: Sequence[TrialCell]) -> TrialSummary:
    """One combination over its seeds; `mark_best` compares it with the others."""
    finished = [cell for cell in cells if cell.accuracy is not None]
    accuracies = [cell.accuracy for cell in finished if cell.accuracy is not None]
    losses = [cell.label_loss for cell in finished if cell.label_loss is not None]
    return TrialSummary(
        objective=trial.objective,
        settings=trial.settings,
        cells=tuple(cells),
        seeds=tuple(cell.seed for cell in finished),
        missing_seeds=tuple(cell.seed for cell in cells if cell.accuracy is None),
        mean=statistics.fmean(accuracies) if accuracies else None,
        standard_deviation=statistics.stdev(accuracies) if len(accuracies) > 1 else None,
        label_loss=statistics.fmean(losses) if losses else None,
        best=False,
    )


def mark_best(trials: Sequence[TrialSummary]) -> tuple[TrialSummary, ...]:
    """Mark the best combination of each objective: the highest mean accuracy, then the lowest label loss, then the
    first.

    Only those that have finished every seed of the objective are compared, so that all means are over the same seeds.
    """
    seeds: dict[str, set[int]] = {}
    for trial in trials:
        seeds.setdefault(trial.objective, set()).update(cell.seed for cell in trial.cells)
    found = [replace(trial, missing_seeds=tuple(sorted(seeds[trial.objective] - {*trial.seeds}))) for trial in trials]
    for objective in seeds:
        places = [place for place, trial in enumerate(found) if trial.objective == objective]
        complete = [place for place in places if not found[place].missing_seeds]
        if len(places) > 1 and complete:
            best = max(complete, key=lambda place: (found[place].mean or 0.0, -(found[place].label_loss or 0.0)))
            found[best] = replace(found[best], best=True)
    return tuple(found)
