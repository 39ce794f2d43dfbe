"""The kind `csv:PATH`: texts and labels as comma-separated values below a line of column names."""

import csv
from collections.abc import Iterator
from pathlib import Path

from tpkd.data.tables import LABEL, TEXT
from tpkd.errors import InputError
from tpkd.files import read_lines


def csv_rows(path: Path) -> Iterator[tuple[int, object, object]]:
    """Line, text and label of every sample; other columns are ignored.

    Raises:
        InputError: missing or duplicate columns, or a row with more or fewer fields than columns.
    """
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
