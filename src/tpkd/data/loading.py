"""Data sets by name or path."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from tpkd.data.cifar100 import load_cifar100
from tpkd.data.clinc150 import load_clinc150
from tpkd.data.csv import csv_rows
from tpkd.data.dataset import Dataset
from tpkd.data.digits import load_digits
from tpkd.data.folder import load_folder
from tpkd.data.jsonl import jsonl_rows
from tpkd.data.tables import RowReader, load_table
from tpkd.errors import InputError, did_you_mean

SPLITS = ("train", "test")
DATA_VARIABLE = "TPKD_DATA"

Loader: TypeAlias = Callable[[str, Path], Dataset]

PUBLISHED: dict[str, Loader] = {"clinc150": load_clinc150, "cifar100": load_cifar100}
"""Data sets by name: from a split and the folder of published data."""
LOADERS: dict[str, Loader] = {
    "folder": load_folder,
}
"""Other kinds of data, named KIND:PATH: from a split and the path."""
TABLES: dict[str, RowReader] = {
    "jsonl": jsonl_rows,
    "csv": csv_rows,
}
"""Kinds of tables of texts and labels, named KIND:PATH: from a file to its rows."""


def load_dataset(name: str, split: str, *, root: str | Path | None = None, allow_singletons: bool = False) -> Dataset:
    """A data set as labelled samples with stable ids.

    Args:
        name: "digits" (embedded in scikit-learn); "clinc150" (`clinc150/data_full.json` under the root); "cifar100"
            (`cifar-100-python/` or `cifar100.npz` under the root); "folder:PATH" (`train/CLASS/` and `test/CLASS/` with
            images); "jsonl:PATH" or "csv:PATH" (a file, or a directory with `train.jsonl` and `test.jsonl`, columns
            text and label).
        split: "train" or "test".
        root: the folder that holds published data sets, by default what the variable TPKD_DATA names. A relative PATH
            starts there when a root is given, else in the working directory.
        allow_singletons: accept a label of a table that occurs once where others occur often; without it such a label
            is refused, because it is usually a stray comma or a typo.

    Raises:
        InputError: an unknown name or split, or files that are missing or not as described; names the file and row.

    Example:
        >>> digits = load_dataset("digits", "test")
        >>> len(digits), digits.kind, digits.ids[:3].tolist(), digits.labels[:3].tolist()
        (719, 'image', [1616, 1443, 485], [9, 8, 1])
    """
    if split not in SPLITS:
        raise InputError(f"split: expected {' or '.join(SPLITS)}, found {split!r}")
    check_dataset(name)
    kind, _, path = name.partition(":")
    if name == "digits":
        return load_digits(split)
    if name in PUBLISHED:
        return PUBLISHED[name](split, _published_root(name, root))
    place = Path(root or ".") / path
    if kind in TABLES:
        return load_table(split, place, kind, TABLES[kind], allow_singletons=allow_singletons)
    return LOADERS[kind](split, place)


def check_dataset(name: str) -> None:
    """Refuse a name that `load_dataset` does not know, with the closest it does; nothing is read.

    Example:
        >>> check_dataset("folder:photos")
    """
    names = ("digits", *PUBLISHED, *(f"{kind}:PATH" for kind in (*LOADERS, *TABLES)))
    kind, _, path = name.partition(":")
    if (f"{kind}:PATH" if path else name) not in names:
        hint = did_you_mean(name, names)
        raise InputError(f"data set: expected one of {', '.join(names)}, found {name!r}{hint}")


def _published_root(name: str, root: str | Path | None) -> Path:
    found = root or os.environ.get(DATA_VARIABLE)
    if not found:
        raise InputError(f"{name}: expected the folder that holds it as the root or in the variable {DATA_VARIABLE}")
    return Path(found)
