"""The model card of an exported student: plain Markdown, from the records of its run alone."""

from pathlib import Path
from typing import Any

from tpkd.config.schema import RunConfig, TeacherConfig
from tpkd.files import read_parsed
from tpkd.training.directory import ENVIRONMENT_NAME, Environment, RunResult

CARD_NAME = "README.md"
SHOWN_CLASSES = 20
LICENCE = "Not stated. Fill in a licence that the data, the teacher and the start of the student allow."


def model_card(config: RunConfig, result: RunResult, environment: Environment | None, notes: list[str]) -> str:
    """Data, classes, teacher, objective, accuracy, seeds and versions of a student.

    Folders of the machine are left out: of a path, only its last part is shown.

    Args:
        config: of the run.
        result: of the run.
        environment: versions, None where the run has no record of them.
        notes: what to know about the format, in Markdown.
    """
    names = result.class_names or ()
    rows = {
        "Network": _last_part(config.student.model),
        "Start": _start(config),
        "Data": f"{_last_part(config.data.name)}, {result.samples} training samples seen in {result.epochs} epochs",
        "Classes": f"{len(names)}: {_some(names)}",
        "Teacher": _teacher(config),
        "Objective": _settings(config.objective.name, config.objective.settings),
        "Optimiser": _settings(config.optimizer.name, config.optimizer.model_dump(exclude={"name"})),
        "Accuracy": _accuracy(result),
        "Precision": config.precision,
        "Weights": f"fingerprint `{result.kept_fingerprint[:16]}`{_kept(result)}",
        "Data fingerprint": f"`{result.data_fingerprint[:16]}`",
    }
    if environment is not None:
        versions = {"Python": environment.python, **environment.libraries}
        rows["Versions"] = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [f"# {_escaped(_last_part(config.student.model))} trained with {result.objective}", ""]
    lines += ["| | |", "|---|---|", *(f"| {name} | {_escaped(value)} |" for name, value in rows.items())]
    lines += ["", *(f"- {note}" for note in notes)] if notes else []
    lines += ["", "## Licence", "", LICENCE, ""]
    return "\n".join(lines)


def read_environment(run: Path) -> Environment | None:
    """Where the run was started last, None where that is not recorded."""
    return read_parsed(run / ENVIRONMENT_NAME, Environment.from_json)


def _kept(result: RunResult) -> str:
    if result.kept is None:
        return ""
    measured = "" if result.kept.accuracy is None else f", which gives {result.kept.accuracy:.2%}"
    return f", kept in {result.kept.precision}{measured}"


def _last_part(source: str) -> str:
    kind, colon, path = source.rpartition(":")
    return f"{kind}{colon}{Path(path).name or path}"


def _start(config: RunConfig) -> str:
    weights = config.student.weights
    start = "random or published weights" if weights is None else f"weights {Path(weights).name}"
    return f"{start}, head {config.student.head}, seed {config.student.seed}"


def _teacher(config: RunConfig) -> str:
    several = [f"{_one_teacher(teacher)}, weight {teacher.weight:g}" for teacher in config.teachers]
    if several:
        return f"{len(several)} averaged: {'; '.join(several)}"
    return "none" if config.teacher is None else _one_teacher(config.teacher)


def _one_teacher(teacher: TeacherConfig) -> str:
    parts = [_last_part(teacher.model)] if teacher.model else []
    parts += [f"weights {Path(teacher.weights).name}"] if teacher.weights else []
    parts += [f"cache {Path(teacher.cache).name}"] if teacher.cache else []
    return ", ".join(parts)


def _settings(name: str, settings: dict[str, Any]) -> str:
    said = ", ".join(f"{key} {value}" for key, value in settings.items() if value is not None)
    return f"{name} ({said})" if said else f"{name} (defaults)"


def _accuracy(result: RunResult) -> str:
    selected = f"; {result.selected}" if result.selected else ""
    return f"{result.accuracies}, seed {result.seed}, one run{selected}"


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN_CLASSES} more" if len(names) > SHOWN_CLASSES else ""
    return ", ".join(names[:SHOWN_CLASSES]) + more


def _escaped(text: str) -> str:
    """A text that stays in its cell and is not taken for markup."""
    line = " ".join(text.split())
    return "".join(f"\\{char}" if char in "|<>*_[]\\" else char for char in line)
