"""The labels of a diagnosis, in whatever form they come: classes by number or name, one-hot rows, or probabilities."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from tpkd.arrays import ArrayFile, TextFile, open_array, open_texts
from tpkd.class_names import class_positions
from tpkd.diagnosis.soft_labels import check_soft_labels
from tpkd.errors import InputError, did_you_mean, shortened
from tpkd.geometry.inputs import class_indices

IGNORED = -100
"""The label of a row that is left out, as in torch's cross-entropy."""

_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_SCAN_ROWS = 1 << 14


class Expected(NamedTuple):
    """What the labels have to fit to."""

    examples: int
    num_classes: int
    teacher: Path
    class_names: tuple[str, ...] | None
    """None where the classes are only numbered."""
    names_from: str
    """Where the names are from, as messages call it."""
    top_k: int | None
    """How many classes a truncated teacher kept; None for a whole one."""


class Labels(NamedTuple):
    """Labels that fit in number and type: integer classes `(N,)`, or probabilities `(N, K)`."""

    array: ArrayFile
    one_hot: bool
    """Whether the file has a row of zeros and a one for each class."""


def open_labels(path: Path, expected: Expected, *, column: str | None = None) -> Labels:
    """Open the labels of N examples and K classes.

    Taken are whole numbers `(N,)`, names `(N,)` of classes whose names are known, whole numbers or booleans `(N, K)`
    that are one-hot, and floating-point probabilities `(N, K)`. Numbers written as text are numbers.

    Args:
        path: the file.
        expected: what they have to fit to.
        column: the column or array of the labels, where it is not the usual one.

    Raises:
        InputError: names the file, what was found and what to do; values of numbers are looked at later.
    """
    key, exact = column or "labels", column is not None
    texts = open_texts(path, key=key, exact=exact)
    array = open_array(path, key=key, exact=exact) if texts is None else _mapped(texts, expected)
    if array.dtype.is_floating_point:
        _check_soft(array, expected)
        return Labels(array, one_hot=False)
    shape = (expected.examples, expected.num_classes)
    if array.shape == shape:
        return Labels(_from_one_hot(array), one_hot=True)
    if array.dtype == torch.bool:
        raise InputError(f"{path}: expected integer class labels or probabilities, found bool of shape {array.shape}")
    if array.shape != shape[:1]:
        found = f"found shape {array.shape}{_shape_hint(array.shape, expected)}"
        raise InputError(f"{path}: expected {expected.examples} labels as in {expected.teacher}, {found}")
    return Labels(array, one_hot=False)


def _shape_hint(found: tuple[int, ...], expected: Expected) -> str:
    examples, num_classes = expected.examples, expected.num_classes
    if found == (examples, 1):
        return "; save them without their second axis, as labels[:, 0]"
    if found == (num_classes, examples):
        return "; it looks transposed: a row per example is expected"
    if found == (num_classes,):
        return f"; {expected.teacher} may be transposed: a row per example and a column per class are expected"
    return ""


def _check_soft(labels: ArrayFile, expected: Expected) -> None:
    shape = (expected.examples, expected.num_classes)
    dtype = str(labels.dtype).removeprefix("torch.")
    if expected.top_k is not None:
        raise InputError(
            f"{labels.path}: expected integer class labels, found {dtype}: {expected.teacher} kept only its top "
            f"{expected.top_k} classes, and probabilities as labels need the logits of all"
        )
    if labels.shape != shape:
        hint = "; save classes as integers, as labels.astype(int)" if len(labels.shape) == 1 else ""
        raise InputError(
            f"{labels.path}: expected integer class labels of shape {shape[:1]} or probabilities of shape {shape}, "
            f"found {dtype} of shape {labels.shape}{hint or _shape_hint(labels.shape, expected)}"
        )


def _from_one_hot(array: ArrayFile) -> ArrayFile:
    """The classes of one-hot rows, each of which is looked at when it is read."""

    def read(rows: int) -> Iterator[Tensor]:
        start = 0
        for block in array.blocks(rows):
            values = block.long()
            wrong = ((values != 0) & (values != 1)).any(-1) | (values.sum(-1) != 1)
            if wrong.any():
                row = int(wrong.nonzero()[0])
                ones, largest = int((values[row] == 1).sum()), int(values[row].abs().max())
                found = f"{ones} ones" if largest <= 1 else f"{largest}"
                raise InputError(
                    f"{array.path}: row {start + row}: expected one-hot labels, a single 1 and zeros, found {found}; "
                    "give classes as numbers, or shares that sum to 1 as floating-point numbers"
                )
            yield values.argmax(-1)
            start += len(block)

    return replace(array, shape=array.shape[:1], dtype=torch.int64, _read=read)


def _mapped(texts: TextFile, expected: Expected) -> ArrayFile:
    """Texts as classes: numbers where all are whole numbers, else the positions of their names."""
    positions = None if expected.class_names is None else class_positions(expected.class_names)
    found = _scan(texts, positions or {})
    wrong = found.not_whole if positions is None else found.unknown
    if not found.whole and wrong is not None:
        raise InputError(_unknown_name(texts.path, *wrong, expected))
    if found.whole and found.unknown is None and found.moved is not None and positions is not None:
        row, text = found.moved
        raise InputError(
            f"{texts.path}: row {row}: {text!r} can be a class number or the name of class {positions[text]} of "
            f"{expected.names_from}; save numbers as an array of integers, or give the classes other names"
        )
    known: Mapping[str, int] = {} if found.whole or positions is None else positions

    def read(rows: int) -> Iterator[Tensor]:
        for block in texts.blocks(rows):
            places = ((text, _position(text, known)) for text in map(str.strip, block))
            yield torch.tensor([int(text) if place is None else place for text, place in places], dtype=torch.int64)

    return ArrayFile(texts.path, (texts.rows,), torch.int64, read)


def _position(text: str, positions: Mapping[str, int]) -> int | None:
    place = positions.get(text)
    return positions.get(text.casefold()) if place is None else place


class _Scan(NamedTuple):
    """What texts are, after a look at all of them."""

    not_whole: tuple[int, str] | None
    """Row and text of the first that is not a whole number."""
    unknown: tuple[int, str] | None
    """Row and text of the first that is not a class name."""
    moved: tuple[int, str] | None
    """Row and text of the first name that is also the number of another class."""

    @property
    def whole(self) -> bool:
        """Whether all are whole numbers."""
        return self.not_whole is None


def _scan(texts: TextFile, positions: Mapping[str, int]) -> _Scan:
    not_whole, unknown, moved, row = None, None, None, 0
    for block in texts.blocks(_SCAN_ROWS):
        for text in map(str.strip, block):
            place, is_whole = _position(text, positions), _WHOLE.fullmatch(text) is not None
            not_whole = not_whole or (None if is_whole else (row, text))
            if place is None and not (is_whole and int(text) == IGNORED):
                unknown = unknown or (row, text)
            elif moved is None and place is not None and is_whole and int(text) != place:
                moved = (row, text)
            row += 1
    return _Scan(not_whole, unknown, moved)


def _unknown_name(path: Path, row: int, text: str, expected: Expected) -> str:
    shown = repr(shortened(text, 60))
    if expected.class_names is None:
        return (
            f"{path}: row {row}: expected a class number, found {shown}; for labels by name, give the names of the "
            "classes in the order of the logits with --class-names"
        )
    if text in map(str.strip, expected.class_names):
        way_out = "give the labels as class numbers"
        return f"{path}: row {row}: {shown} is the name of several classes of {expected.names_from}; {way_out}"
    is_first_line = row == 0 and path.suffix in (".csv", ".tsv", ".txt")
    hint = did_you_mean(text, expected.class_names) or ("; call a column of labels 'label'" if is_first_line else "")
    return f"{path}: row {row}: expected a class of {expected.names_from}, found {shown}{hint}"


class LabelCheck:
    """Every label is looked at, and those to be left out are counted.

    Example:
        >>> check = LabelCheck(ArrayFile(Path("y.npy"), (3,), torch.int64, lambda rows: iter(())), num_classes=3)
        >>> check.add(0, torch.tensor([2, -100, 0]))
        >>> check.finish()
        1
    """

    def __init__(self, labels: ArrayFile, num_classes: int) -> None:
        """Nothing seen yet."""
        self._labels, self._num_classes = labels, num_classes
        self._ignored, self._least, self._largest = 0, num_classes, -1
        self._wrong: tuple[int, int] | None = None

    def add(self, start: int, block: Tensor) -> None:
        """Look at a block that begins at row `start`."""
        if block.is_floating_point():
            check_soft_labels(self._labels, block, start)
            return
        indices = class_indices(block)
        kept = indices[indices != IGNORED]
        self._ignored += len(indices) - len(kept)
        if len(kept):
            self._least, self._largest = min(self._least, int(kept.min())), max(self._largest, int(kept.max()))
        outside = (indices != IGNORED) & ((indices < 0) | (indices >= self._num_classes))
        if self._wrong is None and outside.any():
            row = int(outside.nonzero()[0])
            self._wrong = (start + row, int(block[row].item()))

    def finish(self) -> int:
        """How many rows are left out.

        Raises:
            InputError: names the first wrong row, or says that nothing is left.
        """
        path, last = self._labels.path, self._num_classes - 1
        if self._wrong is not None:
            row, value = self._wrong
            hint = ""
            if self._least >= 1 and self._largest == self._num_classes:
                hint = f"; they go from {self._least} to {self._largest}: subtract 1"
            elif value < 0:
                hint = f"; mark rows to leave out with {IGNORED}"
            raise InputError(f"{path}: row {row}: expected a label from 0 to {last}, found {value}{hint}")
        if self._ignored == self._labels.shape[0]:
            raise InputError(f"{path}: expected at least one label from 0 to {last}, found {IGNORED} in every row")
        return self._ignored
