"""The kinds `csv:PATH` and `tsv:PATH`: texts and labels, separated by commas or tabs, below a line of column names."""

import csv
from collections.abc import Iterator
from pathlib import Path

from tpkd.data.columns import Columns
from tpkd.errors import InputError
from tpkd.files import read_lines


def csv_rows(path: Path, columns: Columns, *, delimiter: str = ",") -> Iterator[tuple[int, object, object, object]]:
    """Line, text, label and id of every sample; other columns are ignored, and None is given for one not asked for.

    Raises:
        InputError: missing or duplicate columns, or a row with more or fewer fields than columns.
    """
    reader = csv.reader(read_lines(path, keep_ends=True), strict=True, delimiter=delimiter)
    try:
        names = next(reader, [])
        chosen = columns.choose(f"{path}: line 1", names)
        text = names.index(chosen.input)
        label, sample_id = (None if name is None else names.index(name) for name in (chosen.label, chosen.id))
        for fields in filter(None, reader):  # an empty line is not a row
            line = f"{path}: line {reader.line_num}"
            if len(fields) != len(names):
                sign = "comma" if delimiter == "," else "tab"
                hint = f"; put a text that holds a {sign} into quotation marks" * (len(fields) > len(names))
                raise InputError(f"{line}: expected {len(names)} fields as in line 1, found {len(fields)}{hint}")
            if fields == names:
                raise InputError(f"{line}: expected a row, found the column names again")
            yield reader.line_num, fields[text], _at(label, fields), _at(sample_id, fields)
    except csv.Error as error:
        hint = "; is a quotation mark before it never closed?" * ("field limit" in str(error) or "end of" in str(error))
        raise InputError(f"{path}: line {reader.line_num}: not CSV: {error}{hint}") from error


def _at(place: int | None, fields: list[str]) -> str | None:
    return None if place is None else fields[place]


def tsv_rows(path: Path, columns: Columns) -> Iterator[tuple[int, object, object, object]]:
    """Line, text, label and id of every sample, as `csv_rows` with tabs."""
    return csv_rows(path, columns, delimiter="\t")
