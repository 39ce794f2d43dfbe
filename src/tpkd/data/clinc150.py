"""CLINC150: intents of short questions, from the published JSON."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tpkd.data.dataset import Dataset
from tpkd.data.labels import has_text
from tpkd.errors import InputError
from tpkd.files import read_text, reading

FILE = "clinc150/data_full.json"


def load_clinc150(split: str, root: Path) -> Dataset:
    """The in-domain questions of `data_full.json`: 18,000 for training, the official 4,500 for testing.

    The paper merges the original training and validation parts, in this order, into one pool; out-of-scope rows are
    dropped. Classes are the 150 intents in alphabetical order. Sample ids are positions in the pool; the test part
    continues the count.
    """
    path = root / FILE
    with reading(path):
        published = json.loads(read_text(path))
    pool = _pairs(published, "train", path) + _pairs(published, "val", path)
    test = _pairs(published, "test", path)
    class_names = tuple(sorted({intent for _, intent in pool}))
    unknown = sorted({intent for _, intent in test} - set(class_names))
    if unknown:
        raise InputError(f"{path}: test: expected the intents of train, found {unknown[0]!r}")
    pairs, first_id = (test, len(pool)) if split == "test" else (pool, 0)
    index = {name: position for position, name in enumerate(class_names)}
    texts = tuple(text for text, _ in pairs)
    labels = np.array([index[intent] for _, intent in pairs], np.int64)
    return Dataset("clinc150", split, "text", texts, labels, first_id + np.arange(len(pairs)), class_names)


def _pairs(published: Any, part: str, path: Path) -> list[tuple[str, str]]:
    rows = published.get(part) if isinstance(published, dict) else None
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{path}: expected a list of [text, intent] pairs under {part!r}")
    for number, row in enumerate(rows):
        if not (isinstance(row, list) and len(row) == 2 and all(isinstance(item, str) for item in row)):
            raise InputError(f"{path}: {part}[{number}]: expected [text, intent], found {str(row)[:80]}")
        if not has_text(row[0]):
            raise InputError(f"{path}: {part}[{number}]: expected a text, found none")
    return [(text, intent) for text, intent in rows]
