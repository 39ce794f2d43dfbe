"""The kind `jsonl:PATH`: texts and labels as JSON, one object per line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tpkd.data.columns import Chosen, Columns
from tpkd.errors import InputError
from tpkd.files import read_lines


def jsonl_rows(path: Path, columns: Columns) -> Iterator[tuple[int, object, object, object]]:
    """Line, text, label and id of every sample; other keys are ignored. The first line says which keys these are.

    Raises:
        InputError: a line that is not an object with text and label, or has a duplicate key.
    """
    chosen: Chosen | None = None
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        try:
            entry = json.loads(line, object_pairs_hook=_distinct)
        except InputError as error:
            raise InputError(f"{where}: {error}") from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: expected a JSON object, found {line[:60]!r}") from error
        if not isinstance(entry, dict):
            wanted = "text and label" if columns.labelled else "text"
            raise InputError(f"{where}: expected an object with {wanted}, found {line[:60]!r}")
        chosen = chosen or columns.choose(where, list(entry))
        if not entry.keys() >= set(chosen.names):
            names = " and ".join(filter(None, (", ".join(chosen.names[:-1]), chosen.names[-1])))
            raise InputError(f"{where}: expected an object with {names}, found {line[:60]!r}")
        label, sample_id = (None if key is None else entry[key] for key in (chosen.label, chosen.id))
        yield number, entry[chosen.input], label, sample_id


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entry = dict(pairs)
    if len(entry) != len(pairs):
        keys = [key for key, _ in pairs]
        raise InputError(f"duplicate key {next(key for key in keys if keys.count(key) > 1)!r}")
    return entry
