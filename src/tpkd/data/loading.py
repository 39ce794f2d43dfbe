"""Data sets by name or path."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TypeAlias

from tpkd.data import columnar
from tpkd.data.cifar100 import load_cifar100
from tpkd.data.clinc150 import load_clinc150
from tpkd.data.columns import Columns
from tpkd.data.csv import csv_rows, tsv_rows
from tpkd.data.dataset import Dataset
from tpkd.data.digits import load_digits
from tpkd.data.folder import load_folder
from tpkd.data.jsonl import jsonl_rows
from tpkd.data.parts import WITHOUT_VALIDATION
from tpkd.data.tables import Labelling, RowReader, load_table
from tpkd.data.vectors import SUFFIXES, load_vectors
from tpkd.errors import InputError, did_you_mean
from tpkd.remote_files import is_remote, local_path

SPLITS = ("train", "test", "validation")
OWN = "python"
"""The name of a data set that a program brings along."""
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
    "tsv": tsv_rows,
}
"""Kinds of tables of texts and labels, named KIND:PATH: from a file to its rows."""


def load_dataset(
    name: str,
    split: str,
    *,
    root: str | Path | None = None,
    allow_singletons: bool = False,
    columns: Mapping[str, str] | None = None,
    splits: Mapping[str, str] | None = None,
    unlabelled: bool | Collection[str] = False,
    class_names: Sequence[str] | None = None,
) -> Dataset:
    """A data set as labelled samples with stable ids.

    Args:
        name: "digits" (embedded in scikit-learn); "clinc150" (`clinc150/data_full.json` under the root); "cifar100"
            (`cifar-100-python/` or `cifar100.npz` under the root); "folder:PATH" (`train/CLASS/` and `test/CLASS/` with
            images); "jsonl:PATH", "csv:PATH", "tsv:PATH", "parquet:PATH" or "arrow:PATH" (a file, or a directory with
            `train.jsonl` and `test.jsonl` and so on); "disk:FOLDER" (written by `save_to_disk` of the library
            `datasets`) or "hf:ID" (an id of the Hugging Face hub); "vector:PATH" (features and labels in a `.npz`,
            `.safetensors` or `.npy` file, or one such file per part in a directory).
        split: "train", "test" or "validation", which digits, clinc150 and cifar100 do not have.
        root: the folder that holds published data sets, by default what the variable TPKD_DATA names. A relative PATH
            starts there when a root is given, else in the working directory.
        allow_singletons: accept a label of a table that occurs once where others occur often; without it such a label
            is refused, because it is usually a stray comma or a typo.
        columns: from `text`, `image`, `label` or `id` to the column of a table; default: the usual names.
        splits: from a split to its file in the directory, or to its name in `datasets`; default: the usual names.
        unlabelled: the training part has no labels, or none that are to be read; classes are those of the test part.
            Or the names of all parts of which that is true.
        class_names: all classes in order, for unlabelled data whose test part does not have every class, or no labels.

    Raises:
        InputError: an unknown name or split, or files that are missing or not as described; names the file and row.

    Example:
        >>> digits = load_dataset("digits", "test")
        >>> len(digits), digits.kind, digits.ids[:3].tolist(), digits.labels[:3].tolist()
        (719, 'image', [1616, 1443, 485], [9, 8, 1])
    """
    if split not in SPLITS:
        raise InputError(f"split: expected {', '.join(SPLITS[:-1])} or {SPLITS[-1]}, found {split!r}")
    check_dataset(name)
    kind, _, path = name.partition(":")
    place = local_path(path) if is_remote(path) or kind == "hf" else Path(root or ".") / path
    chosen = Columns.from_names(columns)
    without = ("train",) if unlabelled is True else tuple(unlabelled or ())
    labelling = Labelling(without, None if class_names is None else tuple(class_names), allow_singletons)
    if kind in TABLES:
        return load_table(split, place, kind, TABLES[kind], columns=chosen, splits=splits, labelling=labelling)
    if kind in columnar.KINDS:
        return columnar.load_columnar(kind, split, place, columns=chosen, splits=splits, labelling=labelling)
    chosen.refuse(name)
    if kind == "vector":
        return load_vectors(split, place, splits=splits, labelling=labelling)
    if splits:
        raise InputError(f"{name}: expected no data.splits, found {', '.join(splits)}: its parts have fixed names")
    if kind == "folder":
        return load_folder(split, place, labelling)
    if class_names is not None:
        raise InputError(f"{name}: expected no data.class_names: it has classes of its own")
    dataset = _load_labelled(name, split, place, root)
    if labelling.has_labels(split):
        return dataset
    return replace(dataset.without_labels(), notes=labelling.notes(name, *dataset.notes))


def _load_labelled(name: str, split: str, place: Path, root: str | Path | None) -> Dataset:
    kind = name.partition(":")[0]
    if kind in LOADERS:
        return LOADERS[kind](split, place)
    if split == "validation":
        raise InputError(f"{name}: expected a validation part, found train and test alone; {WITHOUT_VALIDATION}")
    return load_digits(split) if name == "digits" else PUBLISHED[name](split, _published_root(name, root))


def check_dataset(name: str) -> None:
    """Refuse a name that `load_dataset` does not know, with the closest it does; nothing is read.

    Example:
        >>> check_dataset("folder:photos")
    """
    if name == OWN:
        problem = f"{OWN!r} is a data set that a program gives to tpkd.training.fit"
        raise InputError(f"data set: {problem}, and cannot be loaded without that program")
    kinds = (*LOADERS, "vector", *TABLES, *columnar.KINDS)
    names = ("digits", *PUBLISHED, *(f"{kind}:{'ID' if kind == 'hf' else 'PATH'}" for kind in kinds))
    kind, _, path = name.partition(":")
    if kind not in kinds if path else name not in names:
        raise InputError(f"data set: expected one of {', '.join(names)}, found {name!r}{_hint(name, names, kinds)}")


def _hint(name: str, names: Sequence[str], kinds: Sequence[str]) -> str:
    """What may have been meant: a path lacks its kind."""
    suffix = PurePath(name).suffix.removeprefix(".").lower()
    kind = "vector" if suffix in SUFFIXES else suffix
    if kind in kinds:
        return f"; did you mean {kind}:{name}?"
    if "/" in name or Path(name).is_dir():
        return f"; a path needs its kind before it, such as folder:{name} or csv:{name}"
    return did_you_mean(name, names)


def _published_root(name: str, root: str | Path | None) -> Path:
    found = root or os.environ.get(DATA_VARIABLE)
    if not found:
        raise InputError(f"{name}: expected the folder that holds it as the root or in the variable {DATA_VARIABLE}")
    return Path(found)
