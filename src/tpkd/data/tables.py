"""Texts and their labels from JSON lines or CSV."""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tpkd.data.dataset import Dataset
from tpkd.data.labels import check_singletons, first_twin, has_text, label_problem, sort_labels
from tpkd.errors import InputError, did_you_mean
from tpkd.files import read_lines

TEXT, LABEL = "text", "label"


class Row(NamedTuple):
    """One sample, and the line of the file that it ends in."""

    line: int
    text: str
    label: str


def load_table(split: str, path: Path, suffix: str, *, allow_singletons: bool = False) -> Dataset:
    """Rows with `text` and `label` from a file, or from `train.SUFFIX` and `test.SUFFIX` in a directory.

    A single file is a training part and has no test part. JSON lines hold one object per line; CSV begins with a line
    of column names; other columns are left out. Labels are names or numbers. Classes are the labels of the training
    part, in the order of numbers where all of them are numbers, else in alphabetical order. Sample ids count rows of
    the training part, the test part counts on.

    Refused by file and line: a row with more or fewer fields than columns, an empty text, a label with white space
    around it or that differs from another one in case alone, one number written in two ways, a test label that is not
    in the training part, and, unless `allow_singletons`, a label that occurs once where others occur often.
    """
    if path.is_dir():
        train_path, test_path = path / f"train.{suffix}", path / f"test.{suffix}"
    elif split == "test":
        raise InputError(f"{path}: expected a directory with train.{suffix} and test.{suffix} for a test part")
    else:
        train_path = test_path = path
    train = _READERS[suffix](train_path)
    _check_labels(train_path, train, allow_singletons=allow_singletons)
    class_names = sort_labels(row.label for row in train)
    rows, first_id = (_READERS[suffix](test_path), len(train)) if split == "test" else (train, 0)
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


def _json_rows(path: Path) -> Iterator[tuple[int, object, object]]:
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line, object_pairs_hook=_distinct)
        except _DuplicateKeyError as error:
            raise InputError(f"{path}: line {number}: duplicate key {error.args[0]!r}") from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: line {number}: expected a JSON object, found {line[:60]!r}") from error
        if not isinstance(entry, dict) or not {TEXT, LABEL} <= entry.keys():
            raise InputError(f"{path}: line {number}: expected an object with text and label, found {line[:60]!r}")
        yield number, entry[TEXT], entry[LABEL]


class _DuplicateKeyError(ValueError):
    pass


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entry = dict(pairs)
    if len(entry) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _DuplicateKeyError(next(key for key in keys if keys.count(key) > 1))
    return entry


def _csv_rows(path: Path) -> Iterator[tuple[int, object, object]]:
    reader = csv.reader(read_lines(path, keep_ends=True), strict=True)
    try:
        columns = next(reader, [])
        if not {TEXT, LABEL} <= set(columns):
            raise InputError(f"{path}: line 1: expected the columns text and label, found {', '.join(columns)!r}")
        for name in (TEXT, LABEL):
            if columns.count(name) > 1:
                raise InputError(f"{path}: line 1: duplicate column {name!r}")
        text, label = columns.index(TEXT), columns.index(LABEL)
        for fields in filter(None, reader):  # an empty line is not a row
            line = f"{path}: line {reader.line_num}"
            if len(fields) != len(columns):
                hint = "; put a text that holds a comma into quotation marks" * (len(fields) > len(columns))
                raise InputError(f"{line}: expected {len(columns)} fields as in line 1, found {len(fields)}{hint}")
            if fields == columns:
                raise InputError(f"{line}: expected a row, found the column names again")
            yield reader.line_num, fields[text], fields[label]
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.line_num}: not CSV: {error}") from error


def _reader(entries: Callable[[Path], Iterator[tuple[int, object, object]]]) -> Callable[[Path], list[Row]]:
    def read(path: Path) -> list[Row]:
        rows = [_checked(path, *entry) for entry in entries(path)]
        if not rows:
            raise InputError(f"{path}: expected at least one row, found none")
        return rows

    return read


def _checked(path: Path, line: int, text: object, label: object) -> Row:
    if not isinstance(text, str) or not has_text(text):
        found = "none" if isinstance(text, str) else repr(text)
        raise InputError(f"{path}: line {line}: text: expected a text, found {found}")
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise InputError(f"{path}: line {line}: label: expected a name or a whole number, found {label!r}")
    if problem := label_problem(str(label)):
        raise InputError(f"{path}: line {line}: label: {problem}")
    return Row(line, text, str(label))


_READERS: dict[str, Callable[[Path], list[Row]]] = {"jsonl": _reader(_json_rows), "csv": _reader(_csv_rows)}
