"""Texts and their labels from JSON lines or CSV."""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tpkd.data.dataset import Dataset
from tpkd.files import InputError, read_lines

TEXT, LABEL = "text", "label"

Row = tuple[str, str]


def load_table(split: str, path: Path, suffix: str) -> Dataset:
    """Rows with `text` and `label` from a file, or from `train.SUFFIX` and `test.SUFFIX` in a directory.

    A single file is a training part and has no test part. JSON lines hold one object a line; CSV begins with a line of
    column names; other columns are left out. Labels are names (numbers count as their digits); classes are the sorted
    labels of the training part. Sample ids count rows of the training part, the test part counts on.
    """
    if path.is_dir():
        train_path, test_path = path / f"train.{suffix}", path / f"test.{suffix}"
    elif split == "test":
        raise InputError(f"{path}: expected a directory with train.{suffix} and test.{suffix} for a test part")
    else:
        train_path = test_path = path
    train = _READERS[suffix](train_path)
    class_names = tuple(sorted({label for _, label in train}))
    rows, first_id = (_READERS[suffix](test_path), len(train)) if split == "test" else (train, 0)
    index = {name: position for position, name in enumerate(class_names)}
    unknown = sorted({label for _, label in rows} - set(index))
    if unknown:
        raise InputError(f"{test_path}: expected the labels of {train_path}, found {unknown[0]!r}")
    labels = np.array([index[label] for _, label in rows], np.int64)
    texts = tuple(text for text, _ in rows)
    return Dataset(f"{suffix}:{path}", split, "text", texts, labels, first_id + np.arange(len(rows)), class_names)


def _read_jsonl(path: Path) -> list[Row]:
    return _checked(path, _json_rows(path))


def _json_rows(path: Path) -> Iterator[tuple[int, object, object]]:
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: line {number}: expected a JSON object, found {line[:60]!r}") from error
        if not isinstance(entry, dict) or not {TEXT, LABEL} <= entry.keys():
            raise InputError(f"{path}: line {number}: expected an object with text and label, found {line[:60]!r}")
        yield number, entry[TEXT], entry[LABEL]


def _read_csv(path: Path) -> list[Row]:
    return _checked(path, _csv_rows(path))


def _csv_rows(path: Path) -> Iterator[tuple[int, object, object]]:
    reader = csv.DictReader(read_lines(path, keep_ends=True), strict=True)
    try:
        columns = reader.fieldnames or []
        if not {TEXT, LABEL} <= set(columns):
            raise InputError(f"{path}: line 1: expected the columns text and label, found {', '.join(columns)!r}")
        for entry in reader:
            yield reader.line_num, entry[TEXT], entry[LABEL]
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.reader.line_num}: not CSV: {error}") from error


def _checked(path: Path, entries: Iterator[tuple[int, object, object]]) -> list[Row]:
    rows = []
    for number, text, label in entries:
        if not isinstance(text, str):
            raise InputError(f"{path}: line {number}: text: expected a text, found {text!r}")
        if isinstance(label, bool) or not isinstance(label, str | int) or label == "":
            raise InputError(f"{path}: line {number}: label: expected a name or a whole number, found {label!r}")
        rows.append((text, str(label)))
    if not rows:
        raise InputError(f"{path}: expected at least one row, found none")
    return rows


_READERS: dict[str, Callable[[Path], list[Row]]] = {"jsonl": _read_jsonl, "csv": _read_csv}
