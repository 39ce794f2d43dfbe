"""A folder of images, one sub-folder per class."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tpkd.data.dataset import Dataset, ImageFiles, path_id
from tpkd.data.labels import first_twin, sort_labels
from tpkd.data.parts import VALIDATION_NAMES, find_part
from tpkd.errors import InputError, some
from tpkd.files import reading

IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
OTHER_IMAGE_SUFFIXES = (".avif", ".eps", ".heic", ".heif", ".jfif", ".jp2", ".psd", ".svg", ".tga")
"""Image formats we do not decode: refused by name, because silently skipping samples changes the data set."""
MADE_BY_SYSTEMS = ("__MACOSX", "__pycache__", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "lost+found")
"""Folders that operating systems and archivers leave behind; hidden ones begin with a dot."""


def load_folder(split: str, root: Path) -> Dataset:
    """Images under `root/train/CLASS/` and `root/test/CLASS/`, decoded on access.

    Without `test/`, the folder `val/`, `valid/`, `validation/` or `dev/` is the test part; beside it, such a folder is
    the validation part.

    Classes are the folders of the training part that hold images, in numerical order if all names are numbers, else in
    alphabetical order. Hidden files and folders, those that operating systems leave behind, and empty folders are
    ignored. The test part has the same classes; an empty folder there means that a class has no test images. Samples
    are in the order of their sorted paths within a class. A sample id is the first 63 bits of the SHA-256 of the path
    below the root: it does not change when other files are added or removed.
    """
    train = _images_by_class(root / "train")
    class_names = sort_labels(name for name, files in train.items() if files)
    if not class_names:
        raise InputError(f"{root / 'train'}: expected images ({', '.join(IMAGE_SUFFIXES)}), found none")
    images, part = train, find_part(root, split, _parts(root))
    if split != "train":
        images = _images_by_class(root / part.name)
        _check_classes(root, part.name, class_names, images)
    paths: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(class_names):
        paths += [path.relative_to(root).as_posix() for path in images[name]]
        labels += [label] * len(images[name])
    if not paths:
        raise InputError(f"{root / part.name}: expected images ({', '.join(IMAGE_SUFFIXES)}), found none")
    ids = np.array([path_id(path) for path in paths], np.int64)
    files_on_disk = ImageFiles(root, tuple(paths))
    notes = () if part.note is None else (part.note,)
    return Dataset(f"folder:{root}", split, "image", files_on_disk, np.array(labels, np.int64), ids, class_names, notes)


def _parts(root: Path) -> list[str]:
    return [name for name in ("train", "test", *VALIDATION_NAMES) if (root / name).is_dir()]


def _images_by_class(folder: Path) -> dict[str, list[Path]]:
    """The sorted images of every visible sub-folder; an empty list for an empty one."""
    with reading(folder):
        entries = sorted(entry for entry in folder.iterdir() if _counts(entry.relative_to(folder).parts))
        folders = [entry for entry in entries if entry.is_dir()]
        for entry in entries:
            if entry.suffix.lower() in (*IMAGE_SUFFIXES, *OTHER_IMAGE_SUFFIXES) and not entry.is_dir():
                raise InputError(
                    f"{entry}: expected images in one folder per class; move it into the folder of its class"
                )
        if not folders:
            raise InputError(f"{folder}: expected one folder per class, found none")
        images = {entry.name: _images(entry) for entry in folders}
    names = [name for name, files in images.items() if files]
    if twin := first_twin(names):
        place, earlier, how = twin
        raise InputError(f"{folder}: class folders {names[earlier]!r} and {names[place]!r} {how}; merge or rename them")
    return images


def _images(folder: Path) -> list[Path]:
    visible = [path for path in folder.rglob("*") if _counts(path.relative_to(folder).parts)]
    files = sorted(path for path in visible if not path.is_dir())
    for path in files:
        if path.suffix.lower() in OTHER_IMAGE_SUFFIXES:
            raise InputError(f"{path}: expected {', '.join(IMAGE_SUFFIXES)}, found {path.suffix!r}; convert it")
    images = [path for path in files if path.suffix.lower() in IMAGE_SUFFIXES]
    if files and not images:
        others = ", ".join(path.name for path in files[:3])
        raise InputError(
            f"{folder}: expected images ({', '.join(IMAGE_SUFFIXES)}), found none, but other files: {others}"
        )
    return images


def _counts(parts: Iterable[str]) -> bool:
    return not any(part.startswith(".") or part in MADE_BY_SYSTEMS for part in parts)


def _check_classes(root: Path, part: str, class_names: tuple[str, ...], images: dict[str, list[Path]]) -> None:
    strangers = sorted(name for name, files in images.items() if files and name not in class_names)
    if strangers:
        raise InputError(f"{root / part / strangers[0]}: expected the classes of {root / 'train'}, found another one")
    missing = [name for name in class_names if name not in images]
    if missing:
        raise InputError(
            f"{root / part}: expected the classes of {root / 'train'}, "
            f"found no folder {some(list(map(repr, missing)), 1)}; "
            "add an empty folder for a class without test images"
        )
