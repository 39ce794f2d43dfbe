"""The kind `jsonl:PATH`: texts and labels as JSON, one object per line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tpkd.data.tables import LABEL, TEXT
from tpkd.errors import InputError
from tpkd.files import read_lines


def jsonl_rows(path: Path) -> Iterator[tuple[int, object, object]]:
    """Line, text and label of every sample; other keys are ignored.

    Raises:
        InputError: a line that is not an object with text and label, or has a duplicate key.
    """
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line, object_pairs_hook=_distinct)
        except InputError as error:
            raise InputError(f"{path}: line {number}: {error}") from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: line {number}: expected a JSON object, found {line[:60]!r}") from error
        if not isinstance(entry, dict) or not {TEXT, LABEL} <= entry.keys():
            raise InputError(f"{path}: line {number}: expected an object with text and label, found {line[:60]!r}")
        yield number, entry[TEXT], entry[LABEL]


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entry = dict(pairs)
    if len(entry) != len(pairs):
        keys = [key for key, _ in pairs]
        raise InputError(f"duplicate key {next(key for key in keys if keys.count(key) > 1)!r}")
    return entry
