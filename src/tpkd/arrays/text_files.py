"""Tables of text: `.csv` and `.tsv`, numbers or one column of texts, read in blocks; and texts in lines."""

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tpkd.arrays.array_file import ArrayFile, TextFile
from tpkd.arrays.columns import BESIDE, USUAL_NAMES, ChosenColumns, choose_columns
from tpkd.errors import InputError, shortened
from tpkd.files import MAX_LINE_LENGTH, read_lines

DELIMITERS = {".csv": ",", ".tsv": "\t"}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|[+-]?inf(inity)?", re.ASCII | re.IGNORECASE)
_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)


class _Table(NamedTuple):
    """The columns of a file, and how many lines of names are before its rows."""

    path: Path
    width: int
    names: tuple[str, ...] | None

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Line and fields of every row; a row with more or fewer fields than the first is refused."""
        fields = _fields(self.path)
        if self.names is not None:
            next(fields)
        for line, row in fields:
            if len(row) != self.width:
                found = f"expected {self.width} fields as in the first line, found {len(row)}"
                raise InputError(f"{self.path}: line {line}: {found}")
            yield line, row


def table_names(path: Path) -> tuple[str, ...]:
    """The names of the columns; none where the first line is already a row."""
    return _open(path).names or ()


def open_table(path: Path, key: str) -> ArrayFile:
    """The columns of an array as numbers: `(N, K)` in float64, or one column `(N,)`, in int64 if all are whole."""
    table = _open(path)
    chosen = _choose(table, key)
    length, whole = 0, chosen.single
    for _, fields in table.rows():
        length += 1
        whole = whole and _WHOLE.fullmatch(fields[chosen.places[0]].strip()) is not None
    shape = (length,) if chosen.single else (length, len(chosen.places))
    dtype = torch.int64 if whole else torch.float64

    def read(rows: int) -> Iterator[Tensor]:
        for block in _blocks(table.rows(), rows):
            values = torch.from_numpy(_numbers(table, block, chosen.places, int if whole else float))
            yield values.reshape(len(block)) if chosen.single else values

    return ArrayFile(path, shape, dtype, read, chosen.class_names)


def open_table_texts(path: Path, key: str) -> TextFile | None:
    """The texts of one column; None where the array `key` has several.

    The first line of a single column is its name if that is a usual one, or if only numbers follow; else it is a text
    as the others.
    """
    table = _open(path)
    chosen = _choose(table, key)
    if not chosen.single:
        return None
    (place,) = chosen.places
    length, numbers = 0, True
    for _, fields in table.rows():
        length += 1
        numbers = numbers and _NUMBER.fullmatch(fields[place].strip()) is not None
    if table.width == 1 and table.names is not None and not numbers and table.names[0] not in (key, *USUAL_NAMES):
        table, length = table._replace(names=None), length + 1

    def read(rows: int) -> Iterator[list[str]]:
        for block in _blocks(table.rows(), rows):
            yield [fields[place] for _, fields in block]

    return TextFile(path, length, read)


def open_lines(path: Path) -> TextFile:
    """One text per line."""

    def read(rows: int) -> Iterator[list[str]]:
        lines = read_lines(path)
        while block := list(islice(lines, rows)):
            yield block

    return TextFile(path, sum(1 for _ in read_lines(path)), read)


def _open(path: Path) -> _Table:
    first = next(_fields(path), None)
    if first is None:
        raise InputError(f"{path}: expected rows of numbers, found an empty file")
    _, fields = first
    if len(fields) == 1 and path.suffix == ".csv" and ";" in fields[0]:
        raise InputError(f"{path}: line 1: expected fields separated by commas, found semicolons; save it with commas")
    return _Table(path, len(fields), tuple(name.strip() for name in fields) if _are_names(path, fields) else None)


def _are_names(path: Path, fields: Sequence[str]) -> bool:
    """Whether a first line holds column names: texts, or the numbers from 0 that pandas gives to columns without."""
    fields = [field.strip() for field in fields]
    if not fields[0] or BESIDE & set(fields) or fields == [str(place) for place in range(len(fields))]:
        return len(fields) > 1 or not _NUMBER.fullmatch(fields[0])
    numbers = [_NUMBER.fullmatch(field) is not None for field in fields]
    if any(numbers) and not all(numbers):
        number, name = fields[numbers.index(True)], fields[numbers.index(False)]
        found = f"found {shortened(number, 60)!r} and {shortened(name, 60)!r}"
        raise InputError(f"{path}: line 1: expected names of columns or numbers, {found}")
    return not numbers[0]


def _choose(table: _Table, key: str) -> ChosenColumns:
    if table.names is not None:
        return choose_columns(f"{table.path}: line 1", table.names, key)
    return ChosenColumns(tuple(range(table.width)), None, table.width == 1)


def _fields(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line and fields of every line that is not empty."""
    length = 0

    def lines() -> Iterator[str]:
        nonlocal length
        for line in read_lines(path, keep_ends=True):
            length += len(line)
            if length > MAX_LINE_LENGTH:  # a row may go on over many lines, inside of quotation marks
                raise InputError(f"{path}: expected at most {MAX_LINE_LENGTH} characters per row, found more")
            if "\0" in line:
                raise InputError(f"{path}: expected a table of text, found a NUL; damaged or not what its suffix says")
            yield line

    reader = csv.reader(lines(), strict=True, delimiter=DELIMITERS[path.suffix])
    try:
        for fields in reader:
            length = 0
            if fields:
                yield reader.line_num, fields
    except csv.Error as error:
        raise InputError(f"{path}: line {reader.line_num}: not CSV: {error}") from error


_Rows = list[tuple[int, list[str]]]


def _blocks(rows: Iterator[tuple[int, list[str]]], size: int) -> Iterator[_Rows]:
    while block := list(islice(rows, size)):
        yield block


def _numbers(table: _Table, block: _Rows, places: Sequence[int], kind: type[int] | type[float]) -> np.ndarray:
    dtype = np.int64 if kind is int else np.float64
    shape = (len(block), len(places))
    rows = (fields for _, fields in block)
    if len(places) < table.width:
        rows = ([fields[place] for place in places] for fields in rows)
    try:
        return np.fromiter(map(kind, chain.from_iterable(rows)), dtype, len(block) * len(places)).reshape(shape)
    except ValueError:
        for line, fields in block:
            for place in places:
                if _NUMBER.fullmatch(fields[place].strip()) is None:
                    column = place + 1 if table.names is None else repr(shortened(table.names[place], 60))
                    found = f"column {column}: expected a number, found {shortened(fields[place], 60)!r}"
                    raise InputError(f"{table.path}: line {line}: {found}") from None
        raise
