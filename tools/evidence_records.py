"""Bring the cells of a grid into results/: `python -m tools.evidence_records results/NAME GRID [GRID ...]`.

With `--studies` before it, only the mechanism studies of the runs in GRID are brought, and no cell.

GRID is a directory of `tpkd compare`, finished or not. Cells that were brought before stay, and are read again only if
their test logits have changed; what is brought a second time gives the same bytes. Logits come from the grid. Grids
that did not keep those of the validation samples, on which the temperature is fitted, or of the start are asked again:
call this where the relative paths of their configurations hold.
"""

import json
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from tools.evidence.setting import (
    EXAMPLES_NAME,
    LABELS_NAME,
    RECORD_NAME,
    START,
    TEACHER,
    CellFacts,
    MethodFacts,
    SettingRecord,
)
from tpkd.arrays import open_array
from tpkd.compare.cells import kept_files, read_final, read_metrics
from tpkd.compare.record import CellCurves
from tpkd.compare.reporting import catalogue
from tpkd.compare.start import TEACHER_NAME
from tpkd.config.loading import MAX_CONFIG_BYTES, load_config
from tpkd.config.output import literal_output
from tpkd.config.schema import RunConfig
from tpkd.data.configured import load_data, load_validation
from tpkd.errors import InputError
from tpkd.files import read_parsed, read_text, sha256, write_file
from tpkd.models.preparation import student_preparation
from tpkd.models.student import build_student
from tpkd.quality.packed import ExampleScores, read_packed, stack_scores, write_packed
from tpkd.quality.scores import RowScores, score_rows
from tpkd.quality.temperature import fit_temperature, losses_at
from tpkd.student.loading import load_student
from tpkd.theory import diagnose
from tpkd.training.directory import CONFIG_NAME, STUDENT_NAME, TEST_LOGITS_NAME, read_result
from tpkd.training.evaluation import evaluate
from tpkd.training.log import METRICS_NAME
from tpkd.training.run import start_accelerator

VALIDATION_LOGITS_NAME = "validation-logits.safetensors"
_SYMBOLS = {"temperature": "T", "alpha": "α", "beta": "β"}

Scored = tuple[RowScores, float | None, np.ndarray | None]
"""Scores of the examples, fitted temperature, and losses at that temperature."""


def bring(target: Path, grids: Iterable[Path]) -> SettingRecord:
    """Write or update the records of a setting from the finished cells of grids."""
    before = read_parsed(target / RECORD_NAME, SettingRecord.from_json)
    cells = {(cell.method, cell.seed): cell for cell in (before.cells if before else ())}
    methods = {method.name: method for method in (before.methods if before else ())}
    found = {_key(path): path for grid in grids for path in _finished(grid)}
    if not found and before is None:
        raise InputError(f"{target}: expected finished cells to bring, found none")
    labels = _labels(target, found.values())
    for name in sorted({method for method, _ in found}):
        by_seed: dict[int, Scored] = {}
        for (method, seed), path in found.items():
            if method == name:
                checksum = sha256(path / TEST_LOGITS_NAME)
                known = cells.get((name, seed))
                if known is None or known.logits_sha256 != checksum:
                    by_seed[seed] = _scored(path, labels)
                cells[name, seed] = _facts(name, seed, path, checksum)
                methods[name] = _method(path)
        _pack(target, name, by_seed, labels)
    _bring_start(target, found, labels)
    bring_studies(target, {path.parent for path in found.values()})
    order = {method.name: place for place, method in enumerate(catalogue().methods)}
    listed = sorted(methods.values(), key=lambda each: (order[each.objective], each.name != each.objective, each.name))
    places = {method.name: place for place, method in enumerate(listed)}
    whole = all(key in found for key in cells if key[0] == "ce")
    record = SettingRecord(
        data=before.data if before else str(_plain(next(iter(found.values())))["data"]["name"]),
        classes=before.classes
        if before
        else open_array(next(iter(found.values())) / TEST_LOGITS_NAME, key="logits").shape[1],
        test_samples=len(labels),
        methods=tuple(listed),
        cells=tuple(sorted(cells.values(), key=lambda cell: (places[cell.method], cell.seed))),
        noise_floor=_noise_floor(found) if whole or before is None else before.noise_floor,
    )
    write_file(target / RECORD_NAME, _compact(record))
    return record


def bring_studies(target: Path, grids: Iterable[Path]) -> int:
    """Copy the mechanism studies of the runs in these directories; returns how many there are."""
    found = [study for grid in grids for study in sorted(grid.glob("*/studies/*.json"))]
    for study in found:
        place = target / "studies" / study.parents[1].name / study.name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(study, place)
    return len(found)


def _compact(record: SettingRecord) -> str:
    """A line per method and cell: curves are long, and a number per line is longer."""
    text = json.dumps(record.to_dict(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return re.sub(r'(?<=[\[,])(?=\{"(?:method|name)":)', "\n", text) + "\n"


def _finished(grid: Path) -> Iterator[Path]:
    for path in sorted(grid.glob(f"*/{TEST_LOGITS_NAME}")):
        if read_result(path.parent) is not None:
            yield path.parent


def _config(path: Path) -> RunConfig:
    return load_config(path / CONFIG_NAME, [("output", literal_output(path))])


@cache
def _plain(path: Path) -> dict[str, Any]:
    """The configuration as it is written, whichever keys it has."""
    found: dict[str, Any] = yaml.safe_load(read_text(path / CONFIG_NAME, MAX_CONFIG_BYTES))
    return found


def _key(path: Path) -> tuple[str, int]:
    config = _plain(path)
    return config["objective"].get("variant") or config["objective"]["name"], config["seed"]


def _method(path: Path) -> MethodFacts:
    config, name = _plain(path), _key(path)[0]
    objective, settings = config["objective"]["name"], config["objective"]["settings"]
    title = catalogue().title(objective)
    if name != objective:
        numbers = {key: value for key, value in settings.items() if isinstance(value, int | float)}
        said = ", ".join(f"{_SYMBOLS.get(key, key)} = {value:g}" for key, value in numbers.items())
        title = f"{title} ({said or name.removeprefix(f'{objective}-')})"
    return MethodFacts(name, title, objective, settings, config["optimizer"]["learning_rate"])


def _array(path: Path, key: str) -> np.ndarray:
    array = open_array(path, key=key)
    found: np.ndarray = torch.cat(list(array.blocks(max(1, array.shape[0])))).numpy()
    return found


def _labels(target: Path, cells: Iterable[Path]) -> np.ndarray:
    """The labels of all cells, which are to be the same; kept beside the scores."""
    path = target / EXAMPLES_NAME / LABELS_NAME
    known: np.ndarray | None = np.load(path, allow_pickle=False).astype(np.int64) if path.exists() else None
    for cell in cells:
        labels = _array(cell / TEST_LOGITS_NAME, "labels").astype(np.int64)
        if known is not None and not np.array_equal(known, labels):
            raise InputError(f"{cell}: expected the test labels of {path}, found others")
        known = labels
    assert known is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        np.save(path, known.astype(np.min_scalar_type(int(known.max()))))
    return known


def _scored(path: Path, labels: np.ndarray) -> Scored:
    logits = _array(path / TEST_LOGITS_NAME, "logits").astype(np.float64)
    kept = path / VALIDATION_LOGITS_NAME
    if kept.exists():
        return _fitted(logits, labels, _array(kept, "logits"), _array(kept, "labels").astype(np.int64))
    config = _config(path)
    validation = load_validation(config)
    if validation is None or not (path / STUDENT_NAME).exists():
        return score_rows(logits, labels), None, None
    student = load_student(path)
    said = evaluate(student.module, validation, student.preparation, start_accelerator(config), config).logits
    return _fitted(logits, labels, said.numpy(), validation.labels)


def _fitted(logits: np.ndarray, labels: np.ndarray, validation: np.ndarray, validation_labels: np.ndarray) -> Scored:
    temperature = fit_temperature(validation, validation_labels)
    return score_rows(logits, labels), temperature, losses_at(logits, labels, temperature)


def _facts(name: str, seed: int, path: Path, checksum: str) -> CellFacts:
    result = read_result(path)
    assert result is not None
    _, curves, _ = read_metrics(path / METRICS_NAME)
    final = read_final(kept_files(path.parent, path.name)[2])
    return CellFacts(name, seed, round(result.seconds, 1), checksum, _rounded(curves), final)


def _rounded(curves: CellCurves | None) -> CellCurves | None:
    """Five digits of each number: curves are drawn, not computed with."""
    if curves is None:
        return None
    values = (curves.label_loss, curves.conditional_loss, curves.blocked_share)
    return CellCurves(curves.epochs, *(tuple(float(f"{value:.5g}") for value in each) for each in values))


def _pack(target: Path, name: str, by_seed: dict[int, Scored], labels: np.ndarray) -> None:
    """Add scores to those of the same method that are there already."""
    if not by_seed:
        return
    path = target / EXAMPLES_NAME / f"{name}.npz"
    if path.exists():
        by_seed = _unstacked(read_packed(path, labels)) | by_seed
    write_packed(path, stack_scores(by_seed), labels)


def _unstacked(scores: ExampleScores) -> dict[int, Scored]:
    found: dict[int, Scored] = {}
    for place, seed in enumerate(scores.seeds):
        rows = scores.of_seed(seed)
        temperature = float(scores.temperatures[place])
        known = not np.isnan(temperature)
        found[seed] = (rows, temperature if known else None, scores.fitted_losses[place] if known else None)
    return found


def _bring_start(target: Path, found: dict[tuple[str, int], Path], labels: np.ndarray) -> None:
    """Scores of the start of every seed, or of the one that all share under seed 0, and of the teacher."""
    path = target / EXAMPLES_NAME / f"{START}.npz"
    known = read_packed(path, labels).seeds if path.exists() else ()
    starts: dict[int, Scored] = {}
    for (_, seed), cell in sorted(found.items()):
        own, shared = cell.parent / f"start-{seed}.npy", cell.parent / "start.npy"
        key = seed if own.exists() else 0
        if key not in known and key not in starts:
            kept = own if own.exists() else shared
            logits = _array(kept, "logits") if kept.exists() else _start(cell)
            starts[key] = (score_rows(logits, labels), None, None)
    _pack(target, START, starts, labels)
    for grid in sorted({cell.parent for cell in found.values()}):
        if (grid / TEACHER_NAME).exists():
            _pack(target, TEACHER, {0: (score_rows(_array(grid / TEACHER_NAME, "logits"), labels), None, None)}, labels)


def _start(cell: Path) -> np.ndarray:
    config = _config(cell)
    train, test, accelerator = load_data(config, "train"), load_data(config, "test"), start_accelerator(config)
    student = build_student(config, train, directory=cell.parent, device=accelerator.device)
    found: np.ndarray = evaluate(student, test, student_preparation(config, test), accelerator, config).logits.numpy()
    return found


def _noise_floor(found: dict[tuple[str, int], Path]) -> tuple[float, ...]:
    """Of CE students by pairs of seeds: 1 and 2, 3 and 4, and so on; so that no student is in two pairs."""
    cells = [path for (method, _), path in sorted(found.items()) if method == "ce"]
    floors = []
    for one, other in list(pairwise(cells))[::2]:
        teacher = one.parent / TEACHER_NAME
        if not teacher.exists():
            return ()
        first, second = (torch.from_numpy(_array(path / TEST_LOGITS_NAME, "logits")).double() for path in (one, other))
        labels = torch.from_numpy(_array(one / TEST_LOGITS_NAME, "labels")).long()
        blocked = diagnose(first, torch.from_numpy(_array(teacher, "logits")).double(), labels).blocked
        if blocked.any():
            floors.append(diagnose(first[blocked], second[blocked], labels[blocked]).conditional_loss.mean().item())
    return tuple(floors)


if __name__ == "__main__":
    studies, words = "--studies" in sys.argv, [word for word in sys.argv[1:] if word != "--studies"]
    if len(words) < 2:
        sys.exit("usage: python -m tools.evidence_records [--studies] results/NAME GRID [GRID ...]")
    target, *grids = map(Path, words)
    if studies:
        print(f"{target}: {bring_studies(target, grids)} studies")
        sys.exit()
    try:
        made = bring(target, grids)
    except InputError as error:
        sys.exit(str(error))
    counts = {method.name: sum(cell.method == method.name for cell in made.cells) for method in made.methods}
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    said = ", ".join(f"{name} {count}" for name, count in counts.items())
    print(f"{target}: {len(made.cells)} cells, {size / 1e6:.1f} MB; {said}")
