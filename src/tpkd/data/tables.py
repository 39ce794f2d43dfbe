"""A data set from rows of input and label, whatever the file format."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tpkd.data.columns import Columns
from tpkd.data.dataset import NO_LABEL, Dataset, path_id
from tpkd.data.labels import check_singletons, first_twin, label_problem, sort_labels, text_problem
from tpkd.data.parts import find_files
from tpkd.errors import InputError, did_you_mean, shortened

RowReader: TypeAlias = Callable[
    [Path, Columns], Iterator[tuple[int, object, object] | tuple[int, object, object, object]]
]
"""Line or row number, text, label and, where the user names its column, id of every sample of a file, as they are in
the file; we check them."""


class Row(NamedTuple):
    """The label and id of one sample, and the line of the file on which it ends."""

    line: int
    label: str | None
    """None where the part has no labels."""
    id: str | None = None


class Rows(NamedTuple):
    """The rows of one part, and the file they come from."""

    where: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class Labelling:
    """Which parts have labels, and where the classes come from.

    Classes are the labels of the training part. Where that has none, they are `class_names`, or the labels of the test
    part.

    Example:
        >>> Labelling().parts("test"), Labelling(unlabelled=("train",)).parts("train")
        (('train', 'test'), ('train', 'test'))
    """

    unlabelled: tuple[str, ...] = ()
    """The parts without labels; a column of labels there is ignored."""
    class_names: tuple[str, ...] | None = None
    """All classes in order, for unlabelled data."""
    allow_singletons: bool = False
    """Accept a label that occurs once where others occur often."""

    def __post_init__(self) -> None:
        """Refuse class names beside labels, which say what the classes are."""
        if self.class_names is not None and not self.unlabelled:
            raise InputError("class_names: expected none without unlabelled: the classes are the labels")

    @property
    def source(self) -> str:
        """The part whose labels are the classes."""
        return "test" if "train" in self.unlabelled else "train"

    def parts(self, split: str) -> tuple[str, ...]:
        """What to read for a split: the training part, whose ids it continues, itself, and the one with the classes."""
        return tuple(dict.fromkeys(("train", split, *([self.source] if self.class_names is None else []))))

    def has_labels(self, part: str) -> bool:
        """Whether the labels of a part are read."""
        return part not in self.unlabelled

    def columns(self, part: str, columns: Columns) -> Columns:
        """The columns to read of a part."""
        return columns if self.has_labels(part) else columns.without_label()

    def notes(self, where: object, *notes: str | None) -> tuple[str, ...]:
        """What the user must be told, with a word on training samples without labels."""
        said = f"{where}: training samples have no labels, so the monitor is off" if self.unlabelled else None
        return tuple(note for note in (*notes, said) if note is not None)


def load_table(
    split: str,
    path: Path,
    suffix: str,
    read_rows: RowReader,
    *,
    columns: Columns | None = None,
    splits: Mapping[str, str] | None = None,
    labelling: Labelling | None = None,
) -> Dataset:
    """Rows of text and label from a file, or from `train.SUFFIX` and `test.SUFFIX` in a directory.

    A single file is a training part and has no test part. Labels are names or numbers. Classes are the labels of the
    training part, in numerical order if all are numbers, else in alphabetical order. Sample ids are row numbers of the
    training part, continued in the other parts, unless `columns` names an id.

    Refused by file and line: an empty text, a label with white space around it or that differs from another only in
    case, a number written in two ways, a test label that is not in the training part, and, unless
    `labelling.allow_singletons`, a label that occurs once where others occur often.
    """
    columns, labelling = columns or Columns(), labelling or Labelling()
    found = {part: find_files(path, part, (suffix,), splits) for part in labelling.parts(split)}
    read = {part: _read(files[0], read_rows, labelling.columns(part, columns)) for part, (files, _) in found.items()}
    rows = {part: part_rows for part, (_, part_rows) in read.items()}
    labels, class_names = encode_labels(rows, split, labelling)
    ids = sample_ids(split, rows["train"], rows[split])
    notes = labelling.notes(path, found[split].note)
    return Dataset(f"{suffix}:{path}", split, "text", tuple(read[split][0]), labels, ids, class_names, notes)


def encode_labels(
    parts: Mapping[str, Rows], split: str, labelling: Labelling, *, declared: Sequence[str] | None = None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The labels of a split as numbers, and the classes, whose spelling is checked where they are taken from labels.

    Args:
        parts: the rows of `labelling.parts(split)`.
        split: the part to encode.
        labelling: where the classes come from.
        declared: the order of the classes, if the data declare it; default: numerical or alphabetical. Of labels of
            the training part, only those that occur are classes.

    Raises:
        InputError: names the file and the line.
    """
    part, where = parts[split], "data.class_names"
    class_names = labelling.class_names
    if class_names is None:
        source = parts[labelling.source]
        where = source.where
        class_names = _classes(source, declared, labelling)
    if not labelling.has_labels(split):
        return np.full(len(part.rows), NO_LABEL), class_names
    index = {name: position for position, name in enumerate(class_names)}
    for row in part.rows:
        if row.label not in index:
            hint = did_you_mean(str(row.label), index)
            raise InputError(
                f"{part.where}: line {row.line}: label: expected one of {where}, found {row.label!r}{hint}"
            )
    return np.array([index[str(row.label)] for row in part.rows], np.int64), class_names


def _classes(source: Rows, declared: Sequence[str] | None, labelling: Labelling) -> tuple[str, ...]:
    labels = [str(row.label) for row in source.rows]
    _check_labels(source, labels, allow_singletons=labelling.allow_singletons)
    if declared is None:
        return sort_labels(labels)
    # What the test part lacks may well occur among samples without labels.
    occurring = set(declared if labelling.unlabelled else labels)
    return tuple(name for name in declared if name in occurring)


def sample_ids(split: str, train: Rows, part: Rows) -> NDArray[np.int64]:
    """The ids of a part: hashes of the split and the id of each row, or row numbers where the rows have none.

    Row numbers of the test part continue after the training part; those of the validation part start far above both.
    """
    if part.rows[0].id is None:
        first = {"train": 0, "test": len(train.rows), "validation": len(train.rows) + (1 << 40)}[split]
        return first + np.arange(len(part.rows))
    seen: dict[str, int] = {}
    for row in part.rows:
        earlier = seen.setdefault(str(row.id), row.line)
        if earlier != row.line:
            problem = f"expected different ids, found {shortened(str(row.id), 60)!r} again, as in line {earlier}"
            raise InputError(f"{part.where}: line {row.line}: id: {problem}")
    return np.array([path_id(f"{split}/{row.id}") for row in part.rows], np.int64)


def check_row(
    where: object, line: int, label: object, sample_id: object, *, with_id: bool, labelled: bool = True
) -> Row:
    """The label and id of a row as text, checked; a label that is not asked for is left out.

    Example:
        >>> check_row("a.csv", 2, 7, None, with_id=False)
        Row(line=2, label='7', id=None)
    """
    name = check_label(where, line, label) if labelled else None
    if not with_id:
        return Row(line, name)
    if isinstance(sample_id, bool) or not isinstance(sample_id, str | int) or not str(sample_id).strip():
        found = shortened(repr(sample_id), 60)
        raise InputError(f"{where}: line {line}: id: expected a name or a whole number, found {found}")
    return Row(line, name, str(sample_id))


def check_label(where: object, line: int, label: object) -> str:
    """A label as text.

    Example:
        >>> check_label("a.csv", 2, None)
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: a.csv: line 2: label: expected a name or a whole number, found None
    """
    if isinstance(label, bool) or not isinstance(label, str | int):
        found = shortened(repr(label), 60)
        raise InputError(f"{where}: line {line}: label: expected a name or a whole number, found {found}")
    if problem := label_problem(str(label)):
        raise InputError(f"{where}: line {line}: label: {problem}")
    return str(label)


def check_text(where: object, line: int, text: object) -> str:
    """A text that is one.

    Example:
        >>> check_text("a.csv", 2, "hello")
        'hello'
    """
    if not isinstance(text, str):
        raise InputError(f"{where}: line {line}: text: expected a text, found {shortened(repr(text), 60)}")
    if problem := text_problem(text):
        raise InputError(f"{where}: line {line}: text: {problem}")
    return text


def _check_labels(train: Rows, labels: Sequence[str], *, allow_singletons: bool) -> None:
    if twin := first_twin(labels):
        place, earlier, how = twin
        pair = f"{labels[place]!r} and {labels[earlier]!r} (line {train.rows[earlier].line})"
        raise InputError(f"{train.where}: line {train.rows[place].line}: label: {pair} {how}; write them alike")
    if not allow_singletons:
        check_singletons(train.where, [row.line for row in train.rows], labels)


def _read(path: Path, read_rows: RowReader, columns: Columns) -> tuple[list[str], Rows]:
    texts, rows = [], []
    for line, text, label, *rest in read_rows(path, columns):
        texts.append(check_text(path, line, text))
        sample_id = rest[0] if rest else None
        with_id, labelled = columns.id is not None, columns.labelled
        rows.append(check_row(path, line, label, sample_id, with_id=with_id, labelled=labelled))
    if not rows:
        raise InputError(f"{path}: expected at least one row, found none")
    return texts, Rows(str(path), rows)
