"""The answers of the cells and the teacher of a grid: kept when a cell ends, read when a report is made."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tpkd.arrays import open_array
from tpkd.compare.record import Cell
from tpkd.errors import InputError
from tpkd.files import sha256
from tpkd.quality.answers import Answers, keep_answers, read_answers, score_answers
from tpkd.training.directory import TEST_LOGITS_NAME

ANSWERS_NAME = "answers"
"""Directory for the answers of all cells and of the teacher."""
TEACHER_STEM = f"{ANSWERS_NAME}/teacher"
"""The teacher's files there, without their suffixes; a cell has a seed in its name."""


def keep_scored(logits: Path, labels: Path, stem: Path) -> None:
    """Score the logits of a file and keep the answers as `stem.json` and `stem.npz`."""
    keep_answers(score_answers(open_array(logits), _labels(labels), logits_sha256=sha256(logits)), stem)


def cell_answers(directory: Path, cell: Cell) -> Answers | None:
    """The answers of a finished cell: those kept with it, or scored from the test logits of its run.

    Args:
        directory: of the grid, or of a single run.
        cell: the record of the cell.

    Returns:
        None where neither is there any more.

    Raises:
        InputError: a file is damaged.
    """
    kept = read_answers(directory / ANSWERS_NAME / cell.name)
    if kept is not None and kept.quality.logits_sha256 == cell.logits_sha256:
        return kept
    return _score_run(directory / cell.directory, cell)


def keep_missing(directory: Path, cells: Iterable[Cell]) -> None:
    """Keep the answers of finished cells that have none, or damaged ones, and still have their test logits."""
    for cell in cells:
        if cell.status != "finished":
            continue
        try:
            answers = cell_answers(directory, cell)
        except InputError:
            answers = _score_run(directory / cell.directory, cell)
        if answers is not None and answers.quality.answers_sha256 is None:
            keep_answers(answers, directory / ANSWERS_NAME / cell.name)


def _score_run(run: Path, cell: Cell) -> Answers | None:
    path = run / TEST_LOGITS_NAME
    if not path.exists():
        return None
    return score_answers(open_array(path, key="logits"), _labels(path), logits_sha256=cell.logits_sha256)


def _labels(path: Path) -> np.ndarray:
    array = open_array(path, key="labels")
    return np.concatenate([block.numpy() for block in array.blocks(max(1, array.shape[0]))]).astype(np.int64)
