"""CIFAR-100, from its published pickles or one `.npz`."""

from pathlib import Path
from typing import Any

import numpy as np

from tpkd.arrays import read_npz
from tpkd.data.dataset import Dataset
from tpkd.data.pickled_arrays import MAX_BYTES, read_pickled_arrays
from tpkd.errors import InputError

FOLDER = "cifar-100-python"
ARCHIVE = "cifar100.npz"
TRAIN_IMAGES = 50_000


def load_cifar100(split: str, root: Path) -> Dataset:
    """50,000 training and 10,000 test images, uint8 (32, 32, 3), in the published order with fine labels.

    Read from `cifar-100-python/{train,test,meta}`, or from `cifar100.npz` with `train_images`, `train_labels`,
    `test_images`, `test_labels` (images (n, 32, 32, 3), labels (n,)) and `class_names`. Sample ids are positions in
    the training part; the test part starts at 50,000.
    """
    if (root / ARCHIVE).exists():
        images, labels, class_names = _from_archive(split, root / ARCHIVE)
    else:
        images, labels, class_names = _from_pickles(split, root / FOLDER)
    ids = np.arange(len(images)) + (TRAIN_IMAGES if split == "test" else 0)
    return Dataset("cifar100", split, "image", images, labels, ids, class_names)


def _from_pickles(split: str, folder: Path) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    data, labels = _entries(folder / split, "data", "fine_labels")
    (names,) = _entries(folder / "meta", "fine_label_names")
    if not (isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 2 and data.shape[1] == 3072):
        raise InputError(f"{folder / split}: data: expected uint8 (n, 3072), found {_describe(data)}")
    images = data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), _labels(labels, folder / split), _names(names, folder / "meta")


def _entries(path: Path, *keys: str) -> list[Any]:
    content = read_pickled_arrays(path)
    # Keys are text or bytes, depending on the Python that wrote the file.
    named = {_text(key): value for key, value in content.items()} if isinstance(content, dict) else {}
    missing = [key for key in keys if key not in named]
    if missing:
        raise InputError(f"{path}: expected a dict with {missing[0]!r}, found {_describe(content)}")
    return [named[key] for key in keys]


def _from_archive(split: str, path: Path) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    wanted = (f"{split}_images", f"{split}_labels", "class_names")
    images, labels, names = read_npz(path, wanted, limit=MAX_BYTES)
    if images.dtype != np.uint8 or images.shape[1:] != (32, 32, 3):
        raise InputError(f"{path}: {split}_images: expected uint8 (n, 32, 32, 3), found {_describe(images)}")
    return images, _labels(labels.tolist(), path), _names(names.tolist(), path)


def _labels(labels: Any, path: Path) -> np.ndarray:
    if not (isinstance(labels, list) and all(type(label) is int for label in labels)):
        raise InputError(f"{path}: labels: expected a list of integers, found {_describe(labels)}")
    return np.array(labels, np.int64)


def _names(names: Any, path: Path) -> tuple[str, ...]:
    if not (isinstance(names, list) and names and all(isinstance(name, str | bytes) for name in names)):
        raise InputError(f"{path}: class names: expected a list of texts, found {_describe(names)}")
    return tuple(_text(name) for name in names)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}"
    return f"a dict with {sorted(map(str, value))}" if isinstance(value, dict) else type(value).__name__
