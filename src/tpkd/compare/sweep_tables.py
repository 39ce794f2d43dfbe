"""The table of a sweep, and its best settings as a piece of configuration."""

import json
from typing import Any

from tpkd.compare.sweep_record import SETTINGS, SweepRecord, TrialSummary, short_key
from tpkd.report.methods import Title
from tpkd.report.numbers import percent, plural
from tpkd.report.tables import Column, Content, Row, Table, Traced, to_csv, to_latex, to_markdown

WHY_NO_TEST = (
    "The test split is not shown and was not evaluated: settings that are chosen by it look better on it than they are."
)


def sweep_table(record: SweepRecord, title: Title, path: str = "sweep") -> Table:
    """Every combination of settings on the validation part, the best of each objective in bold.

    Args:
        record: what the sweep found.
        title: of an objective.
        path: where the record is, for the sources of numbers.
    """
    seen = Traced(record, path)
    rows: tuple[Row, ...] = tuple(
        (
            title(trial.objective),
            *(_setting(trial, key) for key in record.keys),
            f"{len(trial.seeds)} of {len(trial.seeds) + len(trial.missing_seeds)}",
            _accuracy(part),
            part.label_loss("nats"),
            "yes" if trial.best else "",
        )
        for trial, part in zip(record.trials, seen.trials, strict=True)
    )
    columns = (
        Column("method", text=True),
        *(Column(short_key(key)) for key in record.keys),
        Column("seeds"),
        Column("validation accuracy (%)"),
        Column("validation label loss (nats)"),
        Column("best", text=True),
    )
    samples = f"{record.data.validation_samples:,}" if record.data.validation_samples else "the"
    caption = (
        f"Settings on {samples} validation samples: mean ± sample standard deviation (n − 1) over seeds. {WHY_NO_TEST}"
    )
    best = frozenset(place for place, trial in enumerate(record.trials) if trial.best)
    return Table("sweep", f"{caption} {record.stamp}".strip(), columns, rows, tuple(_notes(record)), best)


def _setting(trial: TrialSummary, key: str) -> str:
    if key not in trial.settings:
        return ""
    value = trial.settings[key]
    return value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else json.dumps(value)


def _accuracy(trial: Traced) -> Content:
    mean, deviation = trial.mean("percent"), trial.standard_deviation("percent")
    return (mean, " ± ", deviation) if deviation.value is not None else mean


def _notes(record: SweepRecord) -> list[str]:
    notes = []
    if record.best:
        notes.append(
            "Best: the highest mean accuracy of the method; with equal means the lower label loss. With few validation "
            "samples or seeds, neighbours of the best setting may be as good."
        )
    teacher = record.teacher.accuracy if record.teacher else None
    taught = "" if teacher is None else f", the teacher has {percent(teacher)} %"
    notes.append(f"On the same samples the student starts at {percent(record.start.accuracy)} %{taught}.")
    for trial in record.trials:
        if trial.missing_seeds:
            missing = f"{plural(len(trial.missing_seeds), 'seed')} missing ({', '.join(map(str, trial.missing_seeds))})"
            notes.append(f"{trial.name}: {missing}, so it is not compared with the others.")
    return notes


def sweep_files(record: SweepRecord, title: Title) -> dict[str, str]:
    """The table as files, relative path -> text."""
    table = sweep_table(record, title)
    writers = {"md": to_markdown, "csv": to_csv, "tex": to_latex}
    return {f"tables/{table.name}.{kind}": write(table) for kind, write in writers.items()}


def methods_section(record: SweepRecord) -> dict[str, dict[str, Any]]:
    """The section `methods` of a configuration with the best settings, for the objectives that have some.

    What the configuration already has for those objectives is in it.

    Example:
        >>> from types import SimpleNamespace
        >>> best = [SimpleNamespace(objective="tpkd", settings={"objective.settings.beta": 1.0})]
        >>> methods_section(SimpleNamespace(best=best, methods={"tpkd": {"objective.settings": {"temperature": 4.0}}}))
        {'tpkd': {'objective.settings': {'temperature': 4.0, 'beta': 1.0}}}
    """
    return {
        trial.objective: _folded({**record.methods.get(trial.objective, {}), **trial.settings}) for trial in record.best
    }


def _folded(overrides: dict[str, Any]) -> dict[str, Any]:
    """The same overrides with all settings of the objective in one place."""
    whole = overrides.get(SETTINGS[:-1], {})
    single = {key.removeprefix(SETTINGS): value for key, value in overrides.items() if key.startswith(SETTINGS)}
    others = {key: value for key, value in overrides.items() if not f"{key}.".startswith(SETTINGS)}
    return ({SETTINGS[:-1]: {**whole, **single}} if whole or single else {}) | others
