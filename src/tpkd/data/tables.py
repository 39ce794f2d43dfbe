"""A data set from rows of text and label, whatever the file format."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from tpkd.data.dataset import Dataset
from tpkd.data.labels import check_singletons, first_twin, has_text, label_problem, sort_labels
from tpkd.errors import InputError, did_you_mean

TEXT, LABEL = "text", "label"
RowReader: TypeAlias = Callable[[Path], Iterator[tuple[int, object, object]]]
"""Line or row number, text and label of every sample of a file, as they are in the file; we check them."""


class Row(NamedTuple):
    """One sample, and the line of the file on which it ends."""

    line: int
    text: str
    label: str


def load_table(split: str, path: Path, suffix: str, read_rows: RowReader, *, allow_singletons: bool = False) -> Dataset:
    """Rows of text and label from a file, or from `train.SUFFIX` and `test.SUFFIX` in a directory.

    A single file is a training part and has no test part. Labels are names or numbers. Classes are the labels of the
    training part, in numerical order if all are numbers, else in alphabetical order. Sample ids are
    row numbers of the training part, continued in the test part.

    Refused by file and line: an empty text, a label with white space around it or that differs from another only in
    case, a number written in two ways, a test label that is not in the training part, and, unless `allow_singletons`,
    a label that occurs once where others occur often.
    """
    if path.is_dir():
        train_path, test_path = path / f"train.{suffix}", path / f"test.{suffix}"
    elif split == "test":
        raise InputError(f"{path}: expected a directory with train.{suffix} and test.{suffix} for a test part")
    else:
        train_path = test_path = path
    train = _read(train_path, read_rows)
    _check_labels(train_path, train, allow_singletons=allow_singletons)
    class_names = sort_labels(row.label for row in train)
    rows, first_id = (_read(test_path, read_rows), len(train)) if split == "test" else (train, 0)
    index = {name: position for position, name in enumerate(class_names)}
    for row in rows:
        if row.label not in index:
            hint = did_you_mean(row.label, index)
            found = f"expected one of {train_path}, found {row.label!r}{hint}"
            raise InputError(f"{test_path}: line {row.line}: label: {found}")
    labels = np.array([index[row.label] for row in rows], np.int64)
    texts = tuple(row.text for row in rows)
    return Dataset(f"{suffix}:{path}", split, "text", texts, labels, first_id + np.arange(len(rows)), class_names)


def _check_labels(path: Path, rows: list[Row], *, allow_singletons: bool) -> None:
    labels = [row.label for row in rows]
    if twin := first_twin(labels):
        place, earlier, how = twin
        pair = f"{labels[place]!r} and {labels[earlier]!r} (line {rows[earlier].line})"
        raise InputError(f"{path}: line {rows[place].line}: label: {pair} {how}; write them alike")
    if not allow_singletons:
        check_singletons(str(path), [row.line for row in rows], labels)


def _read(path: Path, read_rows: RowReader) -> list[Row]:
    rows = [_checked(path, *row) for row in read_rows(path)]
    if not rows:
        raise InputError(f"{path}: expected at least one row, found none")
    return rows


def _checked(path: Path, line: int, text: object, label: object) -> Row:
    if not isinstance(text, str) or not has_text(text):
        found = "none" if isinstance(text, str) else repr(text)
        raise InputError(f"{path}: line {line}: text: expected a text, found {found}")
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise InputError(f"{path}: line {line}: label: expected a name or a whole number, found {label!r}")
    if problem := label_problem(str(label)):
        raise InputError(f"{path}: line {line}: label: {problem}")
    return Row(line, text, str(label))
