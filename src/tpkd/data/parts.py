"""Where the parts of a data set are: the training part, the test part and the validation part."""

from collections.abc import Collection, Mapping
from pathlib import Path, PurePath
from typing import NamedTuple

from tpkd.errors import InputError, shortened, some

VALIDATION_NAMES = ("validation", "val", "valid", "dev")
"""What people call a validation part."""
WITHOUT_VALIDATION = "data.validation: 0.1 holds out a share of the training part"
"""What to do about data without a validation part."""


class Part(NamedTuple):
    """The name of a part, and what the user must be told about it."""

    name: str
    note: str | None = None


def find_part(where: object, split: str, present: Collection[str], splits: Mapping[str, str] | None = None) -> Part:
    """Which of the parts that are there is a split.

    Without a test part, the validation part is the test part, and there is no validation part.

    Args:
        where: the data, for messages.
        split: "train", "test" or "validation".
        present: the names of the parts that are there.
        splits: names given by the user (`data.splits`); they alone count then.

    Raises:
        InputError: the split is not there, or could be one of several parts.

    Example:
        >>> find_part("photos", "test", ["train", "val"])
        Part(name='val', note="photos: no part 'test', so 'val' is the test part")
        >>> find_part("photos", "validation", ["train", "test", "val"]).name
        'val'
    """
    if splits:
        if split not in splits:
            way_out = f"; {WITHOUT_VALIDATION}" if split == "validation" else ""
            raise InputError(f"{where}: data.splits: expected {split}, found {', '.join(splits)}{way_out}")
        return Part(splits[split])
    if split == "train" or (split == "test" and "test" in present):
        return Part(split)
    others = [name for name in VALIDATION_NAMES if name in present]
    if len(others) > 1:
        problem = f"expected one validation part, found {others[0]!r} and {others[1]!r}"
        raise InputError(f"{where}: {problem}; name the parts with data.splits, or remove one")
    if split == "test":
        said = f"{where}: no part 'test', so {others[0]!r} is the test part" if others else None
        return Part(others[0] if others else split, said)
    if not others or "test" not in present:
        problem = f"expected a test part and one of {', '.join(VALIDATION_NAMES)}"
        found = ", ".join(sorted(present)) or "none"
        raise InputError(f"{where}: {problem} for a validation part, found {found}; {WITHOUT_VALIDATION}")
    return Part(others[0])


class PartFiles(NamedTuple):
    """The files of a part, in order, and what the user must be told about it."""

    files: tuple[Path, ...]
    note: str | None = None


def find_files(
    path: Path, split: str, suffixes: tuple[str, ...], splits: Mapping[str, str] | None = None, *, shards: bool = False
) -> PartFiles:
    """The files of a split: `path` itself for training, or those in the folder `path` that are named after the split.

    Args:
        path: a file, or a folder with one file per split.
        split: "train", "test" or "validation".
        suffixes: of the files, such as "csv".
        splits: file names given by the user, in the folder `path`.
        shards: whether a part may be `train-00000-of-00002.SUFFIX` and so on, as the hub has it.

    Raises:
        InputError: there is no such part.
    """
    if splits:
        if path.is_file():
            raise InputError(f"{path}: expected a folder before data.splits, found a file")
        part = find_part(path, split, (), splits)
        return PartFiles((path / part.name,))
    if path.is_dir():
        found = {name: _files(path, name, suffixes, shards) for name in ("train", "test", *VALIDATION_NAMES)}
        part = find_part(path, split, [name for name, files in found.items() if files])
        if not found[part.name]:
            _refuse_other_names(path, part.name, suffixes)
        # A file that is not there is named by the one who opens it.
        return PartFiles(found[part.name] or (path / f"{part.name}.{suffixes[0]}",), part.note)
    if split != "train":
        named = f"{path}: expected a directory with train.{suffixes[0]} and {split}.{suffixes[0]} for a {split} part"
        raise InputError(f"{named}, or data.{split}: 0.2 to hold out a share of the file")
    return PartFiles((path,))


def _refuse_other_names(folder: Path, name: str, suffixes: tuple[str, ...]) -> None:
    """Refuse a folder whose files have names of their own, with the key that says which is which."""
    others = sorted(path.name for suffix in suffixes for path in folder.glob(f"*.{suffix}"))
    others = [other for other in others if PurePath(other).stem not in ("train", "test", *VALIDATION_NAMES)]
    if others:
        example = f"{{train: {others[0]}, test: {others[-1]}}}" if len(others) > 1 else f"{{{name}: {others[0]}}}"
        problem = f"expected {name}.{suffixes[0]}, found {some(others)}"
        raise InputError(f"{folder}: {problem}; name the files with data.splits, such as {shortened(example)}")


def _files(folder: Path, name: str, suffixes: tuple[str, ...], shards: bool) -> tuple[Path, ...]:
    files = [folder / f"{name}.{suffix}" for suffix in suffixes if (folder / f"{name}.{suffix}").exists()]
    if len(files) > 1:
        raise InputError(f"{folder}: expected one file for the part {name}, found {files[0].name} and {files[1].name}")
    if shards and not files:
        files = sorted(path for suffix in suffixes for path in folder.glob(f"{name}-*-of-*.{suffix}"))
    return tuple(files)
