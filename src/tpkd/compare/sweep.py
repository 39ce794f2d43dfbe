"""A sweep: every combination of some settings of each objective, planned as the cells of a grid of its own."""

import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tpkd.compare.grid import SHARED_KEYS, Grid, GridCell, of_all, of_seed, plan_grid
from tpkd.compare.sweep_record import ALIASES, RATE, SETTINGS, short_key
from tpkd.compare.variants import check_methods
from tpkd.config.loading import Override, load_config
from tpkd.config.output import literal_output
from tpkd.config.plain_yaml import parse_yaml
from tpkd.config.schema import RunConfig
from tpkd.errors import InputError, did_you_mean, shortened
from tpkd.objectives import describe, names
from tpkd.training.directory import CONFIG_NAME, FREE_KEYS

SWEEP_NAME = "sweep"
"""Directory of the runs of a sweep, in that of the comparison."""
AS_CONFIGURED = "as-configured"
"""Variant of an objective that has none of the settings."""

_FIXED = (*FREE_KEYS, "seed", "objective", "snapshots", "snapshot_seeds", "device", "log_every", "monitor_every")
"""Keys that are not settings of training, or that a sweep sets itself."""
_MAX_VARIANT = 80


@dataclass(frozen=True)
class Trial:
    """One combination of swept settings for one objective."""

    objective: str
    settings: dict[str, Any]
    """Dotted key -> value; empty where the objective has none of the settings."""

    @property
    def variant(self) -> str:
        """Its name in files and messages."""
        return variant_name(self.settings) or AS_CONFIGURED


@dataclass(frozen=True)
class Sweep:
    """The trials, and their runs as a grid."""

    home: Path
    """The directory of the comparison, in which the record is kept."""
    grid: Grid
    trials: tuple[Trial, ...]
    keys: tuple[str, ...]
    """The swept keys: those of this call in their order, then those of earlier calls."""


def parse_sweeps(texts: Sequence[str]) -> dict[str, list[Any]]:
    """What is swept: name -> values, which are YAML.

    Raises:
        InputError: a text that is not NAME=VALUE,VALUE, or a name or a value that occurs twice.

    Example:
        >>> parse_sweeps(["beta=0.5,1", "optimizer.betas=[0.9, 0.99],[0.9, 0.999]"])
        {'beta': [0.5, 1], 'optimizer.betas': [[0.9, 0.99], [0.9, 0.999]]}
    """
    found: dict[str, list[Any]] = {}
    for text in texts:
        said = f"--sweep {shortened(text, 60)}"
        name, equals, values = (part.strip() for part in text.partition("="))
        if not equals or not name or not values:
            raise InputError(f"{said}: expected NAME=VALUE,VALUE, such as beta=0.5,1")
        if short_key(ALIASES.get(name, name)) in (short_key(ALIASES.get(other, other)) for other in found):
            raise InputError(f"{said}: expected every name once, found {name} again")
        found[name] = parse_yaml(said, f"[{values}]")
        for place, value in enumerate(found[name]):
            if value in found[name][:place]:
                raise InputError(f"{said}: expected every value once, found {value} twice")
    return found


def plan_sweep(
    path: str | Path,
    overrides: Sequence[Override] = (),
    *,
    sweeps: Sequence[str],
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    known: Iterable[tuple[Trial, int]] = (),
) -> Sweep:
    """Resolve every run of a sweep.

    A setting that an objective does not have is not swept for it.

    Args:
        path: a run's configuration, as `plan_grid` takes it.
        overrides: for every run.
        sweeps: `NAME=VALUE,VALUE`, where NAME is a setting of an objective, `rate`, or a key of the configuration.
        methods: names of `tpkd methods`, by default all that have one of the settings.
        seeds: by default 42, 43, 44.
        known: trials and seeds of earlier calls; those that have been started stay in the table.

    Raises:
        InputError: one line with the name or key, and the closest names to an unknown one.
    """
    values = parse_sweeps(sweeps)
    chosen = check_methods(methods if methods is not None else names(), "methods", names())
    keys = {name: _keys_by_method(name, chosen) for name in values}
    if methods is None:
        chosen = tuple(name for name in chosen if any(name in owners for owners in keys.values()))
    grid = plan_grid(path, overrides, methods=chosen, seeds=seeds)
    asked = [(trial, seed) for trial in _combinations(chosen, keys, values) for seed in grid.seeds]
    directory = grid.directory / SWEEP_NAME
    started = [
        (trial, seed)
        for trial, seed in known
        if trial.objective in names()
        and (trial, seed) not in asked
        and (_place(directory, trial, seed) / CONFIG_NAME).exists()
    ]
    overrides = [*overrides, ("finished.checkpoints", grid.base.finished.checkpoints)]
    pairs = [*asked, *started]
    plain = load_config(path, overrides, methods=False)
    starts = {seed: of_seed(plain, grid.directory, seed) for _, seed in pairs}
    configs = [_config_of(path, [*overrides, *starts[seed]], directory, trial, seed) for trial, seed in asked]
    try:
        configs += [_config_of(path, [*overrides, *starts[seed]], directory, trial, seed) for trial, seed in started]
    except InputError as error:
        problem = f"an earlier sweep in {directory} does not go with this configuration"
        raise InputError(f"{error}: {problem}; take another output") from error
    cells = [
        GridCell(trial.objective, seed, config, place < len(asked), trial.variant)
        for place, ((trial, seed), config) in enumerate(zip(pairs, configs, strict=True))
    ]
    trials = _in_order(trial for trial, _ in pairs)
    whole = replace(
        grid,
        directory=directory,
        objectives=tuple(dict.fromkeys(trial.objective for trial in trials)),
        seeds=tuple(sorted({cell.seed for cell in cells})),
        cells=tuple(cells),
        base=load_config(
            path,
            [*overrides, *of_all(plain, grid.directory, grid.seeds[0]), ("evaluation.test", False)],
            methods=False,
        ),
    )
    swept = [key for owners in keys.values() for key in owners.values()]
    earlier = [key for trial in trials for key in trial.settings]
    return Sweep(grid.directory, whole, trials, tuple(dict.fromkeys([*swept, *earlier])))


def _place(directory: Path, trial: Trial, seed: int) -> Path:
    return directory / trial.objective / trial.variant / f"seed-{seed}"


def _config_of(path: str | Path, overrides: Sequence[Override], directory: Path, trial: Trial, seed: int) -> RunConfig:
    own: list[Override] = [
        ("objective.name", trial.objective),
        ("output", literal_output(_place(directory, trial, seed))),
        ("evaluation.test", False),
        ("snapshots", []),
        *trial.settings.items(),
    ]
    return load_config(path, [*overrides, *own])


def _keys_by_method(name: str, chosen: Sequence[str]) -> dict[str, str]:
    """The key that a swept name stands for, by objective; an objective that does not have it is left out.

    Raises:
        InputError: no objective has it, or a grid could not have it for one objective alone.
    """
    defaults = {method.name: method.defaults for method in describe()}
    setting = name.removeprefix(SETTINGS)
    owners = [method for method in chosen if setting in defaults[method]]
    if owners and name not in ALIASES:
        return dict.fromkeys(owners, SETTINGS + setting)
    key = ALIASES.get(name, name)
    section = key.split(".")[0]
    if section in SHARED_KEYS:
        raise InputError(f"--sweep {name}: expected a setting that cells need not share, found one that all must share")
    if section in _FIXED or section not in RunConfig.model_fields:
        settings = sorted({setting for method in chosen for setting in defaults[method]})
        listed = f"a setting of the methods ({', '.join(settings) or 'none'})"
        expected = f"{listed}, {RATE}, or a key such as optimizer.momentum"
        raise InputError(f"--sweep {name}: expected {expected}{did_you_mean(setting, [*settings, RATE])}")
    return dict.fromkeys(chosen, key)


def _combinations(
    chosen: Sequence[str], keys: Mapping[str, Mapping[str, str]], values: Mapping[str, Sequence[Any]]
) -> list[Trial]:
    found = []
    for method in chosen:
        own = {owners[method]: values[name] for name, owners in keys.items() if method in owners}
        found += [Trial(method, dict(zip(own, each, strict=True))) for each in itertools.product(*own.values())]
    return found


def _in_order(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Every trial once, by objective in table order, in the order in which they came."""
    order = names()
    unique: list[Trial] = []
    for trial in trials:
        if trial not in unique:
            unique.append(trial)
    return tuple(sorted(unique, key=lambda trial: order.index(trial.objective)))


def variant_name(settings: Mapping[str, Any]) -> str:
    """A combination of settings as a file name, whatever their order.

    A hash follows where it cannot be written in plain characters.

    Example:
        >>> variant_name({"optimizer.learning_rate": 0.1, "objective.settings.beta": 1.0})
        'beta=1,rate=0.1'
    """
    written = ",".join(sorted(f"{short_key(key)}={_written(value)}" for key, value in settings.items()))
    plain = re.sub(r"[^A-Za-z0-9_.,=+-]", "_", written)[:_MAX_VARIANT]
    if plain == written:
        return plain
    return f"{plain}-{hashlib.sha256(written.encode()).hexdigest()[:8]}"


def _written(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 1 and 1.0 are the same setting
    return value if isinstance(value, str) else json.dumps(value)
