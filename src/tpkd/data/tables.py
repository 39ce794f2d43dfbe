"""A data set from rows of input and label, whatever the file format."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tpkd.data.columns import Columns
from tpkd.data.dataset import Dataset, path_id
from tpkd.data.labels import check_singletons, first_twin, has_text, label_problem, sort_labels
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
    label: str
    id: str | None = None


class Rows(NamedTuple):
    """The rows of one part, and the file they come from."""

    where: str
    rows: Sequence[Row]


def load_table(
    split: str,
    path: Path,
    suffix: str,
    read_rows: RowReader,
    *,
    columns: Columns | None = None,
    splits: Mapping[str, str] | None = None,
    allow_singletons: bool = False,
) -> Dataset:
    """Rows of text and label from a file, or from `train.SUFFIX` and `test.SUFFIX` in a directory.

    A single file is a training part and has no test part. Labels are names or numbers. Classes are the labels of the
    training part, in numerical order if all are numbers, else in alphabetical order. Sample ids are row numbers of the
    training part, continued in the other parts, unless `columns` names an id.

    Refused by file and line: an empty text, a label with white space around it or that differs from another only in
    case, a number written in two ways, a test label that is not in the training part, and, unless `allow_singletons`,
    a label that occurs once where others occur often.
    """
    columns = columns or Columns()
    train_path = find_files(path, "train", (suffix,), splits).files[0]
    files, note = find_files(path, split, (suffix,), splits)
    texts, train = _read(train_path, read_rows, columns)
    texts, part = (texts, train) if split == "train" else _read(files[0], read_rows, columns)
    labels, class_names = encode_labels(train, part, allow_singletons=allow_singletons)
    ids = sample_ids(split, train, part)
    notes = () if note is None else (note,)
    return Dataset(f"{suffix}:{path}", split, "text", tuple(texts), labels, ids, class_names, notes)


def encode_labels(
    train: Rows, part: Rows, *, classes: Sequence[str] | None = None, allow_singletons: bool = False
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The labels of a part as numbers, and the classes: those of the training part, whose labels are checked.

    Args:
        train: the training part.
        part: the part to encode; may be the training part.
        classes: the order of the classes, if the data declare it; default: numerical or alphabetical.
        allow_singletons: accept a label that occurs once where others occur often.

    Raises:
        InputError: names the file and the line.
    """
    _check_labels(train, allow_singletons=allow_singletons)
    occurring = {row.label for row in train.rows}
    class_names = sort_labels(occurring) if classes is None else tuple(name for name in classes if name in occurring)
    index = {name: position for position, name in enumerate(class_names)}
    for row in part.rows:
        if row.label not in index:
            hint = did_you_mean(row.label, index)
            found = f"expected one of {train.where}, found {row.label!r}{hint}"
            raise InputError(f"{part.where}: line {row.line}: label: {found}")
    return np.array([index[row.label] for row in part.rows], np.int64), class_names


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


def check_row(where: object, line: int, label: object, sample_id: object, *, with_id: bool) -> Row:
    """The label and id of a row as text, checked.

    Example:
        >>> check_row("a.csv", 2, 7, None, with_id=False)
        Row(line=2, label='7', id=None)
    """
    if isinstance(label, bool) or not isinstance(label, str | int):
        found = shortened(repr(label), 60)
        raise InputError(f"{where}: line {line}: label: expected a name or a whole number, found {found}")
    if problem := label_problem(str(label)):
        raise InputError(f"{where}: line {line}: label: {problem}")
    if not with_id:
        return Row(line, str(label))
    if isinstance(sample_id, bool) or not isinstance(sample_id, str | int) or not str(sample_id).strip():
        found = shortened(repr(sample_id), 60)
        raise InputError(f"{where}: line {line}: id: expected a name or a whole number, found {found}")
    return Row(line, str(label), str(sample_id))


def check_text(where: object, line: int, text: object) -> str:
    """A text that is one.

    Example:
        >>> check_text("a.csv", 2, "hello")
        'hello'
    """
    if not isinstance(text, str) or not has_text(text):
        found = "none" if isinstance(text, str) else shortened(repr(text), 60)
        raise InputError(f"{where}: line {line}: text: expected a text, found {found}")
    return text


def _check_labels(train: Rows, *, allow_singletons: bool) -> None:
    labels = [row.label for row in train.rows]
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
        rows.append(check_row(path, line, label, rest[0] if rest else None, with_id=columns.id is not None))
    if not rows:
        raise InputError(f"{path}: expected at least one row, found none")
    return texts, Rows(str(path), rows)
