"""A folder of images, one sub-folder per class."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tpkd.data.dataset import NO_LABEL, Dataset, ImageFiles, path_id
from tpkd.data.labels import first_twin, sort_labels
from tpkd.data.parts import VALIDATION_NAMES, Part, find_part
from tpkd.data.tables import Labelling
from tpkd.errors import InputError, some
from tpkd.files import reading

IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
OTHER_IMAGE_SUFFIXES = (".avif", ".eps", ".heic", ".heif", ".jfif", ".jp2", ".psd", ".svg", ".tga")
"""Image formats we do not decode: refused by name, because silently skipping samples changes the data set."""
MADE_BY_SYSTEMS = ("__MACOSX", "__pycache__", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "lost+found")
"""Folders that operating systems and archivers leave behind; hidden ones begin with a dot."""


def load_folder(split: str, root: Path, labelling: Labelling | None = None) -> Dataset:
    """Images under `root/train/CLASS/` and `root/test/CLASS/`, decoded on access.

    Without `test/`, the folder `val/`, `valid/`, `validation/` or `dev/` is the test part; beside it, such a folder is
    the validation part. Without any of these, `root` itself is the training part, and there is no test part.

    Classes are the folders of the training part that hold images, in numerical order if all names are numbers, else in
    alphabetical order. Hidden files and folders, those that operating systems leave behind, and empty folders are
    ignored. The test part has the same classes; an empty folder there means that a class has no test images. Samples
    are in the order of their sorted paths within a class. A sample id is the first 63 bits of the SHA-256 of the path
    below the root: it does not change when other files are added or removed.

    A training part without labels is every image anywhere below `root/train/`. Classes then are the folders of the test
    part, or `labelling.class_names`.
    """
    labelling = labelling or Labelling()
    parts = {wanted: _find(root, wanted) for wanted in labelling.parts(split)}
    part = parts[split]
    read = {
        wanted: _images_by_class(root / found.name) for wanted, found in parts.items() if labelling.has_labels(wanted)
    }
    class_names = labelling.class_names or _class_names(root / parts[labelling.source].name, read[labelling.source])
    samples: dict[int, list[Path]]
    if split in read:
        if split != labelling.source or labelling.class_names is not None:
            _check_classes(root, part.name, class_names, read[split], labelling)
        samples = {label: read[split].get(name, []) for label, name in enumerate(class_names)}
    else:
        with reading(root / part.name):
            samples = {NO_LABEL: _images(root / part.name)}
    paths = [path.relative_to(root).as_posix() for files in samples.values() for path in files]
    if not paths:
        raise InputError(f"{root / part.name}: expected images ({', '.join(IMAGE_SUFFIXES)}), found none")
    labels = np.repeat(list(samples), [len(files) for files in samples.values()])
    ids = np.array([path_id(path) for path in paths], np.int64)
    notes = labelling.notes(root, part.note)
    return Dataset(f"folder:{root}", split, "image", ImageFiles(root, tuple(paths)), labels, ids, class_names, notes)


def _class_names(folder: Path, images: dict[str, list[Path]]) -> tuple[str, ...]:
    class_names = sort_labels(name for name, files in images.items() if files)
    if not class_names:
        raise InputError(f"{folder}: expected images ({', '.join(IMAGE_SUFFIXES)}), found none")
    return class_names


def _find(root: Path, split: str) -> Part:
    """The folder of a part, relative to the root."""
    present = [name for name in ("train", "test", *VALIDATION_NAMES) if (root / name).is_dir()]
    if present:
        return find_part(root, split, present)
    if split != "train":
        way_out = f"or data.{split}: 0.2 to hold out a share of each class"
        raise InputError(f"{root}: expected the folders train and {split}, found neither; {way_out}")
    return Part(".")


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


def _check_classes(
    root: Path, part: str, class_names: tuple[str, ...], images: dict[str, list[Path]], labelling: Labelling
) -> None:
    source = root / labelling.source if labelling.class_names is None else "data.class_names"
    strangers = sorted(name for name, files in images.items() if files and name not in class_names)
    if strangers:
        raise InputError(f"{root / part / strangers[0]}: expected the classes of {source}, found another one")
    missing = [name for name in class_names if name not in images]
    if missing and not labelling.unlabelled:
        raise InputError(
            f"{root / part}: expected the classes of {source}, "
            f"found no folder {some(list(map(repr, missing)), 1)}; "
            "add an empty folder for a class without test images"
        )
