"""The grid of a comparison: its objectives, its seeds, and the configuration of each run."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from tpkd.class_names import check_class_names
from tpkd.compare.record import DataFacts
from tpkd.compare.variants import check_methods, method_names
from tpkd.config.loading import ConfigError, Override, load_config
from tpkd.config.output import PLACEHOLDERS, fill_output, placeholders_in
from tpkd.config.schema import RunConfig
from tpkd.errors import InputError
from tpkd.models.student import PROBE_NAME
from tpkd.objectives import names
from tpkd.training.directory import CONFIG_NAME, RESULT_NAME, check_bound, has_progress, read_result

DEFAULT_SEEDS = (42, 43, 44)
STUDENTS_NAME = "students"
"""Directory for the test logits of all cells."""

SHARED_KEYS = (
    *("data", "limit", "views", "text", "student", "teacher", "teachers", "epochs", "batch_size", "evaluation"),
    *("selection", "by_seed"),
)
"""Settings that no objective may override: cells that differ here do not compare objectives."""


@dataclass(frozen=True)
class GridCell:
    """One run of the grid."""

    objective: str
    """The name of its method: an objective, or a variant of one."""
    seed: int
    config: RunConfig
    asked: bool = True
    """Whether this call should run it; otherwise an earlier call started it."""
    variant: str = ""
    """What distinguishes it from other cells of the objective and seed, in a sweep."""

    @property
    def name(self) -> str:
        """Its name in messages and file names."""
        return "-".join(part for part in (self.objective, self.variant, str(self.seed)) if part)

    @property
    def directory(self) -> Path:
        """The run directory."""
        return Path(self.config.directory)


@dataclass(frozen=True)
class Grid:
    """Objectives × seeds in one directory, in table order; some objectives may have additional seeds."""

    name: str
    directory: Path
    objectives: tuple[str, ...]
    seeds: tuple[int, ...]
    cells: tuple[GridCell, ...]
    base: RunConfig
    """What all cells share."""

    def by_variant(self) -> dict[tuple[str, str], RunConfig]:
        """One configuration per objective and variant of it; its runs differ only in the seed."""
        return {(cell.objective, cell.variant): cell.config for cell in self.cells}

    def by_objective(self) -> dict[str, RunConfig]:
        """One configuration per objective; its runs differ only in the seed."""
        return {cell.objective: cell.config for cell in self.cells}

    def seeds_by_objective(self) -> dict[str, tuple[int, ...]]:
        """The seeds of each objective."""
        return {name: tuple(cell.seed for cell in self.cells if cell.objective == name) for name in self.objectives}


def plan_grid(
    path: str | Path,
    overrides: Sequence[Override] = (),
    *,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    known: tuple[Sequence[str], Sequence[int]] = ((), ()),
) -> Grid:
    """Resolve every run of a grid and check that the runs compare nothing but objectives.

    Args:
        path: a run's configuration; its `output` names `{objective}` and `{seed}`.
        overrides: for every run, as `load_config` takes them.
        methods: names of `tpkd methods` and of the section `variants`, by default all.
        seeds: by default 42, 43, 44.
        known: objectives and seeds of earlier calls; of their cells, those that have been started stay in the tables.

    Raises:
        InputError: one line with the key or name, and the closest names to an unknown one.
    """
    plain = load_config(path, overrides, methods=False)
    rows = method_names(plain.variants)
    chosen = check_methods(methods if methods is not None else rows, "methods", rows)
    asked_seeds = tuple(seeds if seeds is not None else DEFAULT_SEEDS)
    repeated = [seed for seed in asked_seeds if asked_seeds.count(seed) > 1]
    if repeated:
        raise InputError(f"seeds: expected every seed once, found {repeated[0]} twice")
    if not chosen or not asked_seeds:
        raise InputError("methods and seeds: expected at least one of each")
    check_methods(plain.methods, "key methods", names())
    if plain.objective.settings and chosen != (plain.objective.name,):
        raise ConfigError("objective.settings: expected none in a grid of several; put them under methods")
    directory = grid_directory(plain.output)
    if plain.by_seed and plain.student.probe_file is not None:
        raise ConfigError("student.probe_file: expected none beside by_seed: every seed has a probe of its own")
    shared = list(overrides)
    if plain.finished.checkpoints is None:
        shared.append(("finished.checkpoints", False))  # finished cells never run again, and a grid has many
    objectives = tuple(name for name in rows if name in chosen or name in known[0])
    all_seeds = tuple(sorted({*asked_seeds, *known[1]}))
    possible = (
        GridCell(
            objective,
            seed,
            load_config(path, [*shared, *of_seed(plain, directory, seed), ("objective.name", objective)]),
            objective in chosen and seed in asked_seeds,
        )
        for objective, seed in itertools.product(objectives, all_seeds)
    )
    # An objective may have seeds that were not requested for another one: those combinations are not cells.
    cells = tuple(cell for cell in possible if cell.asked or (cell.directory / CONFIG_NAME).exists())
    _check_shared(cells)
    base = load_config(path, [*shared, *of_all(plain, directory, asked_seeds[0])], methods=False)
    if not base.evaluation.test:
        raise ConfigError("evaluation.test: expected true in a comparison, which shows the accuracy on the test split")
    return Grid(PurePath(path).stem, directory, objectives, all_seeds, cells, base)


def of_seed(plain: RunConfig, directory: Path, seed: int) -> list[Override]:
    """What a seed adds to a configuration: itself, and the file of its start's probe, fitted once for all its cells."""
    own: list[Override] = [("seed", seed)]
    if plain.student.head == "probe" and plain.student.probe_file is None:
        name = f"{Path(PROBE_NAME).stem}-{seed}{Path(PROBE_NAME).suffix}" if plain.by_seed else PROBE_NAME
        own.append(("student.probe_file", str(directory / name)))
    return own


def of_all(plain: RunConfig, directory: Path, first_seed: int) -> list[Override]:
    """What all cells add to a configuration; where seeds differ in more than the order, what the first one adds."""
    return of_seed(plain, directory, first_seed)[0 if plain.by_seed else 1 :]


def grid_directory(output: str) -> Path:
    """The directory containing all cells: `output` up to its first placeholder.

    Example:
        >>> grid_directory("runs/digits/{objective}-{seed}").as_posix()
        'runs/digits'
    """
    missing = [placeholder for placeholder in PLACEHOLDERS if placeholder not in placeholders_in(output)]
    if missing:
        raise ConfigError(f"output: expected {' and '.join(missing)} in it, so that cells do not share a directory")
    parts = PurePath(output).parts
    first = next(index for index, part in enumerate(parts) if placeholders_in(part))
    return Path(*(fill_output(part, {}) for part in parts[:first]))


def _check_shared(cells: Sequence[GridCell]) -> None:
    firsts: dict[int | None, tuple[str, dict[str, Any]]] = {}
    for cell in cells:
        found = cell.config.model_dump(mode="json", include=set(SHARED_KEYS))
        seed = cell.seed if cell.config.by_seed else None  # else seeds share all of it too
        objective, first = firsts.setdefault(seed, (cell.objective, found))
        for key in SHARED_KEYS:
            if found[key] != first[key]:
                expected = f"expected the same for all objectives, as {objective} has it"
                section = "variants" if cell.config.objective.variant else "methods"
                raise ConfigError(f"{section}.{cell.objective}: {key}: {expected}")


def changed_cells(
    grid: Grid, fingerprints: Callable[[int], Mapping[str, str | None]], data: DataFacts
) -> dict[str, str]:
    """Cells whose directories hold a different run, and what differs.

    Args:
        grid: the requested runs.
        fingerprints: of a seed, field of a result -> required value, for the current data and teacher.
        data: the current data.
    """
    found = {}
    for cell in grid.cells:
        if not (cell.directory / CONFIG_NAME).exists() or not has_progress(cell.directory):
            continue  # a run without a checkpoint is replaced anyway
        try:
            check_bound(cell.directory, cell.config)
            result = read_result(cell.directory)
            if result is not None:
                path = cell.directory / RESULT_NAME
                check_class_names(result.class_names, data.class_names, found_in=str(path), expected_in=data.name)
        except InputError as error:
            found[cell.name] = str(error)
            continue
        for field, expected in fingerprints(cell.seed).items():
            if result is not None and getattr(result, field) != expected:
                found[cell.name] = f"{cell.directory}: {field}: expected {expected}, found {getattr(result, field)}"
    return found
