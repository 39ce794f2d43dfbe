"""The kind `vector:PATH`: features computed before, such as frozen embeddings, with their labels."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tpkd.arrays import ArrayFile, open_array, read_npz
from tpkd.class_names import recorded_names
from tpkd.data.dataset import Dataset
from tpkd.data.parts import find_files
from tpkd.data.tables import Labelling, Rows, check_row, encode_labels, sample_ids
from tpkd.errors import InputError
from tpkd.files import open_regular, open_safetensors, reading

SUFFIXES = ("npz", "safetensors", "npy")
MAX_FEATURE_BYTES = 16 << 30
MAX_LABEL_BYTES = 1 << 30
"""Of labels, ids or class names."""
_BLOCK = 1 << 14


class _Part(NamedTuple):
    """One file, its rows and what the labels stand for."""

    path: Path
    features: ArrayFile
    rows: Rows
    class_names: tuple[str, ...] | None


def load_vectors(
    split: str, path: Path, *, splits: Mapping[str, str] | None = None, labelling: Labelling | None = None
) -> Dataset:
    """Features (N, D) and labels (N) from a file, or from one file per part in a directory.

    A `.npz` or `.safetensors` file has the arrays `features` and `labels`, and may have `ids`; `NAME.npy` has the
    features alone, its labels are in `NAME.labels.npy` and its ids, if any, in `NAME.ids.npy`. Labels are whole
    numbers, in a `.npz` also names. `class_names`, an array of a `.npz` or an entry of the metadata of a
    `.safetensors`, names the numbers from 0. Classes, ids and checks are those of tables.

    Raises:
        InputError: names the file, the array and the row.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "train.npz"
        >>> np.savez(path, features=np.eye(3), labels=[1, 0, 1], class_names=["cat", "dog"])
        >>> data = load_vectors("train", path)
        >>> data.inputs.shape, data.class_names, data.labels.tolist()
        ((3, 3), ('cat', 'dog'), [1, 0, 1])
    """
    labelling = labelling or Labelling()
    files = {part: find_files(path, part, SUFFIXES, splits) for part in labelling.parts(split)}
    parts = {part: _open(found.files[0], labelled=labelling.has_labels(part)) for part, found in files.items()}
    train, part = parts["train"], parts[split]
    widths = [opened.features.shape[1] for opened in (train, part)]
    if widths[0] != widths[1]:
        problem = f"expected {widths[0]} numbers per row as {train.path}, found {widths[1]}"
        raise InputError(f"{part.path}: features: {problem}")
    declared = parts[labelling.source].class_names if labelling.source in parts else None
    rows = {part: opened.rows for part, opened in parts.items()}
    labels, class_names = encode_labels(rows, split, labelling, declared=declared)
    notes = labelling.notes(path, files[split].note)
    ids = sample_ids(split, train.rows, part.rows)
    features = _read_features(part)
    return Dataset(f"vector:{path}", split, "vector", features, labels, ids, class_names, notes)


def _open(path: Path, *, labelled: bool) -> _Part:
    names, wanted = _array_names(path), ("features", "labels") if labelled else ("features",)
    for name in wanted:
        if name not in names:
            found = ", ".join(sorted(names)) or "none"
            beside = f"; expected its {name} in {_neighbour(path, name).name}" if path.suffix == ".npy" else ""
            arrays = "arrays features and labels" if labelled else "array features"
            raise InputError(f"{path}: expected the {arrays}, found {found}{beside}")
    features = open_array(path, key="features")
    if len(features.shape) != 2 or features.shape[0] < 1:
        raise InputError(f"{path}: features: expected shape (N, D) with at least one row, found {features.shape}")
    size = features.shape[0] * features.shape[1] * features.dtype.itemsize
    if size > MAX_FEATURE_BYTES:
        raise InputError(f"{path}: features: expected at most {MAX_FEATURE_BYTES} bytes, found {size}")
    read = [name for name in ("labels", "ids") if name in names and (labelled or name == "ids")]
    values = {name: _column(path, name, features.shape[0]) for name in read}
    class_names = _class_names(path, names) if labelled else None
    labels = values.get("labels", [None] * features.shape[0])
    if class_names is not None:
        labels = _named(path, labels, class_names)
    ids = values.get("ids", [None] * len(labels))
    rows = [
        check_row(path, line, label, sample_id, with_id="ids" in values, labelled=labelled)
        for line, (label, sample_id) in enumerate(zip(labels, ids, strict=True), 1)
    ]
    return _Part(path, features, Rows(str(path), rows), class_names)


def _array_names(path: Path) -> list[str]:
    if path.suffix == ".npz":
        with open_regular(path) as file, reading(path), zipfile.ZipFile(file) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    if path.suffix == ".safetensors":
        with open_safetensors(path) as archive:
            return list(archive.keys())
    if path.suffix != ".npy":
        kinds = ", ".join(f".{suffix}" for suffix in SUFFIXES)
        raise InputError(f"{path}: expected a {kinds} file, found the suffix {path.suffix!r}")
    return ["features", *(name for name in ("labels", "ids") if _neighbour(path, name).exists())]


def _neighbour(path: Path, name: str) -> Path:
    return path.with_name(f"{path.stem}.{name}.npy")


def _column(path: Path, name: str, rows: int) -> list[object]:
    """Labels or ids as Python numbers or texts."""
    if path.suffix == ".npz":
        (array,) = read_npz(path, [name], limit=MAX_LABEL_BYTES)
    else:
        opened = open_array(_neighbour(path, name) if path.suffix == ".npy" else path, key=name)
        if opened.shape != (rows,):  # before anything is read: rows that nobody asked for may not fit into memory
            raise InputError(f"{path}: {name}: expected shape ({rows},) as the features, found {opened.shape}")
        if opened.dtype.is_floating_point or opened.dtype == torch.bool:
            raise InputError(
                f"{path}: {name}: expected whole numbers, found {str(opened.dtype).removeprefix('torch.')}"
            )
        array = torch.cat(list(opened.blocks(_BLOCK))).numpy()
    if array.shape != (rows,):
        raise InputError(f"{path}: {name}: expected shape ({rows},) as the features, found {array.shape}")
    if array.dtype.kind not in "iuU":
        raise InputError(f"{path}: {name}: expected whole numbers or texts, found {array.dtype}")
    values: list[object] = array.tolist()
    return values


def _class_names(path: Path, names: list[str]) -> tuple[str, ...] | None:
    if path.suffix == ".safetensors":
        return recorded_names(path)
    if path.suffix == ".npy" or "class_names" not in names:
        return None
    (array,) = read_npz(path, ["class_names"], limit=MAX_LABEL_BYTES)
    if array.ndim != 1 or array.dtype.kind != "U":
        raise InputError(f"{path}: class_names: expected texts of shape (K,), found {array.dtype} {array.shape}")
    return tuple(array.tolist())


def _named(path: Path, labels: list[object], names: tuple[str, ...]) -> list[object]:
    if len(set(names)) != len(names):
        raise InputError(f"{path}: class_names: expected different names, found a name more than once")
    for line, label in enumerate(labels, 1):
        if isinstance(label, int) and not 0 <= label < len(names):
            problem = f"expected 0 to {len(names) - 1}, one of its {len(names)} class names, found {label}"
            raise InputError(f"{path}: line {line}: labels: {problem}")
    return [names[label] if isinstance(label, int) else label for label in labels]


def _read_features(part: _Part) -> NDArray[np.float32]:
    values = np.empty(part.features.shape, np.float32)
    start = 0
    for block in part.features.blocks(_BLOCK):
        values[start : start + len(block)] = block.float().numpy()
        start += len(block)
    wrong = np.flatnonzero(~np.isfinite(values).all(1))
    if len(wrong):
        row = int(wrong[0])
        column = int(np.flatnonzero(~np.isfinite(values[row]))[0])
        problem = f"expected finite numbers that float32 holds, found {values[row, column]} in column {column + 1}"
        raise InputError(f"{part.path}: line {row + 1}: features: {problem}")
    return values
