"""A folder of images, one sub-folder a class."""

import hashlib
from pathlib import Path

import numpy as np

from tpkd.data.dataset import Dataset, ImageFiles
from tpkd.files import InputError, reading

IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


def load_folder(split: str, root: Path) -> Dataset:
    """Images under `root/train/CLASS/` and `root/test/CLASS/`, decoded when they are asked for.

    Classes are the sorted folder names of the training part, samples stand in the order of their sorted paths. A sample
    id is the first 63 bits of the SHA-256 of the path below the root: it stays when other files come or go.
    """
    class_names = _class_folders(root / "train")
    strangers = sorted(set(_class_folders(root / split)) - set(class_names))
    if strangers:
        raise InputError(f"{root / split / strangers[0]}: expected the classes of {root / 'train'}, found another one")
    paths: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(class_names):
        files = sorted(path for path in (root / split / name).rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
        paths += [path.relative_to(root).as_posix() for path in files]
        labels += [label] * len(files)
    if not paths:
        raise InputError(f"{root / split}: expected images ({', '.join(IMAGE_SUFFIXES)}), found none")
    ids = np.array([path_id(path) for path in paths], np.int64)
    files_on_disk = ImageFiles(root, tuple(paths))
    return Dataset(f"folder:{root}", split, "image", files_on_disk, np.array(labels, np.int64), ids, class_names)


def path_id(path: str) -> int:
    """The sample id of a relative path: the first 63 bits of its SHA-256.

    Example:
        >>> path_id("train/cat/1.png")
        3642720691450088411
    """
    return int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "big") >> 1


def _class_folders(folder: Path) -> tuple[str, ...]:
    with reading(folder):
        names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    if not names:
        raise InputError(f"{folder}: expected one folder a class, found none")
    return tuple(names)
