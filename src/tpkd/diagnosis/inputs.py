"""The files of a diagnosis: opened, compared with each other and, block by block, looked at."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tpkd.arrays import ARRAY_SUFFIXES, ArrayFile, open_array
from tpkd.class_names import check_class_names, known_names, read_class_names
from tpkd.errors import InputError
from tpkd.files import read_lines, read_text, reading
from tpkd.geometry.inputs import class_indices
from tpkd.teacher.cache.read import open_cache
from tpkd.theory.diagnosis import are_probabilities

LARGEST_LOGIT = 1e100
"""Beyond this no difference of logits means anything, and sums of them would overflow."""

_HALF = (torch.float16, torch.bfloat16)
_LOST = 53 * math.log(2)
"""Nats below a logit from which on a float64 that holds the larger probability does not notice the smaller one."""


@dataclass(frozen=True)
class DiagnosisInputs:
    """Students, teacher and labels of the same examples, whose shapes and dtypes fit together."""

    students: tuple[ArrayFile, ...]
    teacher: ArrayFile
    labels: ArrayFile
    class_names: tuple[str, ...]
    ids: Path | None
    log_probabilities: bool

    @property
    def known_class_names(self) -> tuple[str, ...] | None:
        """The names of the classes, None where they are only counted."""
        counted = tuple(str(index) for index in range(self.num_classes))
        return None if self.class_names == counted else self.class_names

    @property
    def examples(self) -> int:
        """How many examples every file has."""
        return self.teacher.shape[0]

    @property
    def num_classes(self) -> int:
        """How many classes every file has."""
        return self.teacher.shape[1]

    def blocks(self, student: ArrayFile, rows: int) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
        """First row, student logits, teacher logits (float64) and labels of each block."""
        start = 0
        sources = zip(student.blocks(rows), self.teacher.blocks(rows), self.labels.blocks(rows), strict=True)
        for student_block, teacher_block, label_block in sources:
            yield start, student_block.double(), teacher_block.double(), class_indices(label_block)
            start += len(label_block)

    def check_values(self, rows: int) -> None:
        """Look at every value of every file, `rows` of them at a time, before the first is worked on.

        Raises:
            InputError: names the file and its first wrong row.
        """
        for student in dict.fromkeys(self.students):
            for start, block in _numbered(student, rows):
                self._check_logits(student, block.double(), start)
        floor = TeacherFloor()
        for start, block in _numbered(self.teacher, rows):
            logits = block.double()
            self._check_logits(self.teacher, logits, start)
            floor.add(logits)
        floor.check(self.teacher.path)
        for start, block in _numbered(self.labels, rows):
            _check_label_values(self.labels, block, start, self.num_classes)

    def _check_logits(self, source: ArrayFile, logits: Tensor, start: int) -> None:
        # One reduction finds NaN, infinity and absurd size alike: NaN compares false.
        if not logits.abs().amax().item() <= LARGEST_LOGIT:
            _refuse_first_outlier(source, logits, start)
        if self.log_probabilities:
            _check_normalised(source, logits, start)
        elif start == 0:
            _refuse_probabilities(source, logits)


class TeacherFloor:
    """Whether logits, block by block, are those of a teacher that was cut to its top classes and filled up.

    Said only of what no network answers: in every row several classes share the lowest value to the last bit, so far
    below the next one that beside it their probabilities are lost even in float64. Classes that are at the floor in
    all rows were masked on purpose, and a single class above it is a label, not a cut: neither is counted as one.

    Example:
        >>> floor = TeacherFloor()
        >>> floor.add(torch.tensor([[3.0, 2.0, -1e4, -1e4], [-1e4, 1.0, -1e4, 4.0]]).double())
        >>> floor.is_cut
        True
    """

    def __init__(self) -> None:
        """Nothing seen yet."""
        self._always, self._moves, self._keeps_several = True, False, False
        self._first: Tensor | None = None
        self._value = 0.0

    def add(self, logits: Tensor) -> None:
        """See more rows; after the first honest one nothing is computed any more."""
        if not self._always:
            return
        lowest = logits.amin(-1, keepdim=True)
        at_floor = logits == lowest
        above = logits.masked_fill(at_floor, torch.inf).amin(-1, keepdim=True) - lowest
        kept = (~at_floor).sum(-1)
        self._always = bool(((at_floor.sum(-1) >= 2) & (kept >= 1) & (above.squeeze(-1) >= _LOST)).all())
        if self._first is None:
            self._first, self._value = at_floor[0], lowest[0].item()
        self._moves |= bool((at_floor != self._first).any())
        self._keeps_several |= bool((kept >= 2).any())

    @property
    def is_cut(self) -> bool:
        """Whether everything seen so far, and something was, has the shape of a cut."""
        return self._always and self._moves and self._keeps_several

    def check(self, source: str | Path) -> None:
        """Refuse a teacher that was cut; `source` is how the message calls it."""
        if self.is_cut:
            raise InputError(
                f"{source}: expected the logits of all classes, found all but the largest of every row at one value "
                f"({self._value:.6g} in row 0): a teacher cut to its top classes flips the blocking test"
            )


def open_inputs(
    students: list[Path],
    teacher: Path,
    labels: Path,
    *,
    class_names: Path | Sequence[str] | None = None,
    ids: Path | None = None,
    log_probabilities: bool = False,
) -> DiagnosisInputs:
    """Open every file and check that they speak of the same examples and classes.

    Args:
        students: logits `(N, K)` of one student each, in the order of the trend.
        teacher: logits `(N, K)`, or the directory of a teacher cache.
        labels: integer classes `(N,)`.
        class_names: K names, or a file of them as `tpkd.class_names.read_class_names` takes it; without it those that
            the files of logits carry, or the class numbers. All names that are there are compared.
        ids: N names of the examples, one a line, or an integer array; the row numbers without it. With a teacher cache,
            the sample id of each row, and its view id behind it where the cache has several views.
        log_probabilities: the logits are log-probabilities, which work alike; every row is checked to sum to one.
    """
    teacher_array = _open_cached_logits(teacher, ids) if teacher.is_dir() else _open_logits(teacher)
    student_arrays = tuple(_open_logits(path) for path in students)
    for student in student_arrays:
        if student.shape != teacher_array.shape:
            raise InputError(
                f"{student.path}: expected {teacher_array.shape[0]} examples x {teacher_array.shape[1]} classes as in "
                f"{teacher}, found {student.shape[0]} x {student.shape[1]}"
            )
    examples, num_classes = teacher_array.shape
    return DiagnosisInputs(
        student_arrays,
        teacher_array,
        _open_labels(labels, examples, teacher),
        _choose_class_names(class_names, num_classes, (teacher_array, *student_arrays)),
        None if ids is None else _check_ids(ids, examples, teacher),
        log_probabilities,
    )


def read_ids(ids: Path | None, rows: list[int]) -> dict[int, str]:
    """The names of a few examples; their row numbers without a file of names."""
    if ids is None:
        return {row: str(row) for row in rows}
    wanted = set(rows)
    return {row: name for row, name in enumerate(_iterate_ids(ids)) if row in wanted}


def _numbered(source: ArrayFile, rows: int) -> Iterator[tuple[int, Tensor]]:
    """The blocks of a file, each with the number of its first row."""
    start = 0
    for block in source.blocks(rows):
        yield start, block
        start += len(block)


def _open_logits(path: Path) -> ArrayFile:
    array = open_array(path, key="logits")
    if len(array.shape) != 2:
        raise InputError(f"{path}: expected logits of shape (examples, classes), found shape {array.shape}")
    if not array.dtype.is_floating_point:
        raise InputError(f"{path}: expected floating-point logits, found {_name(array.dtype)}")
    if array.shape[1] < 3:
        raise InputError(
            f"{path}: expected at least 3 classes, found {array.shape[1]}: with a single incorrect class a teacher has "
            "no conditional knowledge to pass on"
        )
    if array.shape[0] < 1:
        raise InputError(f"{path}: expected at least one example, found none")
    return array


def _open_cached_logits(directory: Path, ids: Path | None) -> ArrayFile:
    """The cached rows of the samples that the ids name; without ids, a cache of one view in its own order."""
    cache = open_cache(directory)
    if ids is None:
        return cache.array()
    rows = []
    for number, name in enumerate(_iterate_ids(ids)):
        try:
            rows.append([int(part) for part in name.replace(",", " ").split()])
        except ValueError:
            rows.append([])
        if len(rows[-1]) not in (1, 2) or len(rows[-1]) != len(rows[0]):
            raise InputError(f"{ids}: row {number}: expected a sample id, or a sample and a view id, found {name!r}")
    keys = np.array(rows, dtype=np.int64)
    return cache.array(keys[:, 0], keys[:, 1] if keys.shape[1] == 2 else None)


def _open_labels(path: Path, examples: int, teacher: Path) -> ArrayFile:
    array = open_array(path, key="labels")
    if array.dtype.is_floating_point or array.dtype.is_complex or array.dtype == torch.bool:
        raise InputError(f"{path}: expected integer class labels, found {_name(array.dtype)}")
    if array.shape != (examples,):
        raise InputError(f"{path}: expected {examples} labels as in {teacher}, found shape {array.shape}")
    return array


def _choose_class_names(
    given: Path | Sequence[str] | None, num_classes: int, arrays: tuple[ArrayFile, ...]
) -> tuple[str, ...]:
    """The given names, or those that files of logits carry; the class numbers where there are none."""
    teacher = arrays[0].path
    named = [array for array in arrays if known_names(array.class_names) is not None]
    for array in named[1:]:
        expected_in = str(named[0].path)
        check_class_names(array.class_names, named[0].class_names, found_in=str(array.path), expected_in=expected_in)
    if given is None:
        recorded = named[0].class_names if named else None
        names = recorded or tuple(str(index) for index in range(num_classes))
        source = str(named[0].path) if named else "class names"
    else:
        source = str(given) if isinstance(given, Path) else "class names"
        names = read_class_names(given) if isinstance(given, Path) else tuple(given)
    if len(names) != num_classes:
        raise InputError(f"{source}: expected {num_classes} class names as in {teacher}, found {len(names)}")
    if given is not None and named:
        way_out = "leave the names out to take those that the file carries"
        expected_in = str(named[0].path)
        check_class_names(names, named[0].class_names, found_in=source, expected_in=expected_in, way_out=way_out)
    return names


def _read_json_names(path: Path) -> list[str]:
    with reading(path):
        names = json.loads(read_text(path, encoding="utf-8-sig"))
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{path}: expected a JSON list of strings, found something else")
    return names


def _check_ids(path: Path, examples: int, teacher: Path) -> Path:
    count = sum(1 for _ in _iterate_ids(path))
    if count != examples:
        raise InputError(f"{path}: expected {examples} ids as in {teacher}, found {count}")
    return path


def _iterate_ids(path: Path) -> Iterator[str]:
    if path.suffix not in ARRAY_SUFFIXES:
        yield from _read_json_names(path) if path.suffix == ".json" else read_lines(path)
        return
    array = open_array(path, key="ids")
    if array.shape[1:] not in ((), (2,)) or array.dtype.is_floating_point:
        raise InputError(
            f"{path}: expected one integer id per example, or a sample and a view id, found {_name(array.dtype)} "
            f"of shape {array.shape}"
        )
    for block in array.blocks(65536):
        yield from (" ".join(map(str, row)) for row in block.reshape(len(block), -1).tolist())


def _refuse_first_outlier(source: ArrayFile, logits: Tensor, start: int) -> None:
    row, column = (~(logits.abs() <= LARGEST_LOGIT)).nonzero()[0].tolist()
    raise InputError(
        f"{source.path}: row {start + row}: expected finite logits, found {logits[row, column]} at class {column}"
    )


def _check_normalised(source: ArrayFile, logits: Tensor, start: int) -> None:
    tolerance = 1e-2 if source.dtype in _HALF else 1e-4
    sums = logits.exp().sum(-1)
    wrong = (sums - 1).abs() > tolerance
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise InputError(
            f"{source.path}: row {start + row}: expected log-probabilities whose exponentials sum to 1, "
            f"found a sum of {sums[row].item():.6g}"
        )


def _refuse_probabilities(source: ArrayFile, logits: Tensor) -> None:
    if are_probabilities(logits, source.dtype):
        raise InputError(
            f"{source.path}: row 0: expected logits, found probabilities (nonnegative, with sum 1); "
            "pass their logarithms with --log-probabilities"
        )


def _check_label_values(source: ArrayFile, labels: Tensor, start: int, num_classes: int) -> None:
    indices = class_indices(labels)
    outside = (indices < 0) | (indices >= num_classes)
    if outside.any():
        row = int(outside.nonzero()[0])
        raise InputError(
            f"{source.path}: row {start + row}: expected a label from 0 to {num_classes - 1}, "
            f"found {labels[row].item()}"
        )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
