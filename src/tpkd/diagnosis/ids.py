"""The names of examples, and the rows of a teacher cache that they belong to."""

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np

from tpkd.arrays import ARRAY_SUFFIXES, open_array, open_texts
from tpkd.arrays.columns import ID_NAMES
from tpkd.arrays.text_files import DELIMITERS
from tpkd.errors import InputError
from tpkd.files import read_lines, read_text, reading

_BLOCK = 1 << 16


def read_ids(ids: Path | None, rows: list[int]) -> dict[int, str]:
    """The names of a few examples; their row numbers without a file of names."""
    if ids is None:
        return {row: str(row) for row in rows}
    wanted = set(rows)
    return {row: name for row, name in enumerate(iterate_ids(ids)) if row in wanted}


def check_ids(path: Path, examples: int, teacher: Path) -> Path:
    """Refuse a file of more or fewer ids than there are examples."""
    count = sum(1 for _ in iterate_ids(path))
    if count != examples:
        raise InputError(f"{path}: expected {examples} ids as in {teacher}, found {count}")
    return path


def read_keys(ids: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """The sample ids of a file, and the view ids where it has them."""
    rows = []
    for number, name in enumerate(iterate_ids(ids)):
        try:
            rows.append([int(part) for part in name.replace(",", " ").split()])
        except ValueError:
            rows.append([])
        if len(rows[-1]) not in (1, 2) or len(rows[-1]) != len(rows[0]):
            raise InputError(f"{ids}: row {number}: expected a sample id, or a sample and a view id, found {name!r}")
    if not rows:
        raise InputError(f"{ids}: expected the sample id of every example, found none")
    keys = np.array(rows, dtype=np.int64)
    return keys[:, 0], keys[:, 1] if keys.shape[1] == 2 else None


def _read_json_names(path: Path) -> list[str]:
    with reading(path):
        names = json.loads(read_text(path, encoding="utf-8-sig"))
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{path}: expected a JSON list of strings, found something else")
    return names


def _is_plain_list(path: Path) -> bool:
    """Whether a table of text has no column of ids: each of its lines is one then, such as a sample and a view id."""
    if path.suffix not in DELIMITERS:
        return False
    first = next(read_lines(path), "")
    return not {name.strip(' "') for name in first.split(DELIMITERS[path.suffix])} & set(ID_NAMES)


def iterate_ids(path: Path, *, key: str = "ids") -> Iterator[str]:
    """The ids of a file as texts, one for each row: lines, a JSON list, an array or a column.

    A sample and a view id are two numbers with a space between them. `key` is the array or column to read if there are
    several.
    """
    if path.suffix == ".json":
        yield from _read_json_names(path)
        return
    if path.suffix not in ARRAY_SUFFIXES or _is_plain_list(path):
        yield from read_lines(path)
        return
    texts = open_texts(path, key=key)
    if texts is not None:
        yield from chain.from_iterable(texts.blocks(_BLOCK))
        return
    array = open_array(path, key=key)
    if array.shape[1:] not in ((), (2,)) or array.dtype.is_floating_point:
        dtype = str(array.dtype).removeprefix("torch.")
        raise InputError(
            f"{path}: expected one integer id per example, or a sample and a view id, found {dtype} of shape "
            f"{array.shape}"
        )
    for block in array.blocks(_BLOCK):
        yield from (" ".join(map(str, row)) for row in block.reshape(len(block), -1).tolist())
