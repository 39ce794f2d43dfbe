"""The files of a diagnosis: opened, compared with each other and, block by block, looked at."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tpkd.arrays import ArrayFile, open_array
from tpkd.class_names import check_class_names, known_names, read_class_names
from tpkd.diagnosis.ids import check_ids, read_keys
from tpkd.diagnosis.soft_labels import check_soft_labels
from tpkd.diagnosis.top_k_file import TopKChecks, TopKFile, is_top_k_file, open_top_k_file, top_k_of_cache
from tpkd.errors import InputError
from tpkd.geometry.inputs import class_indices
from tpkd.geometry.top_k import TopK
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
    teacher: ArrayFile | TopKFile
    labels: ArrayFile
    """Integer classes `(N,)`, or probabilities `(N, K)`."""
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
        return self.labels.shape[0]

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return self.students[0].shape[1]

    @property
    def has_soft_labels(self) -> bool:
        """Whether the labels are probabilities."""
        return self.labels.dtype.is_floating_point

    def blocks(self, student: ArrayFile, rows: int) -> Iterator[tuple[int, Tensor, Tensor | TopK, Tensor]]:
        """First row, student logits, teacher logits (float64) and labels of each block.

        A truncated teacher stays in its own precision, which decides how far its bounds can be trusted.
        """
        start = 0
        teacher_blocks: Iterator[Tensor | TopK] = iter(self.teacher.blocks(rows))
        sources = zip(student.blocks(rows), teacher_blocks, self.labels.blocks(rows), strict=True)
        for student_block, teacher_block, label_block in sources:
            teacher = teacher_block if isinstance(teacher_block, TopK) else teacher_block.double()
            labels = _normalised(label_block) if self.has_soft_labels else class_indices(label_block)
            yield start, student_block.double(), teacher, labels
            start += len(label_block)

    def check_values(self, rows: int) -> int:
        """Look at every value of every file, `rows` of them at a time, before the first is worked on.

        Returns:
            How many examples say something about the whole teacher: all, unless it was truncated.

        Raises:
            InputError: names the file and its first wrong row.
        """
        for student in dict.fromkeys(self.students):
            for start, block in _numbered(student, rows):
                self._check_logits(student, block.double(), start)
        if not isinstance(self.teacher, TopKFile):
            self._check_whole_teacher(self.teacher, rows)
        for start, block in _numbered(self.labels, rows):
            if self.has_soft_labels:
                check_soft_labels(self.labels, block, start)
            else:
                _check_label_values(self.labels, block, start, self.num_classes)
        return self._check_top_k(self.teacher, rows) if isinstance(self.teacher, TopKFile) else self.examples

    def _check_whole_teacher(self, teacher: ArrayFile, rows: int) -> None:
        floor = TeacherFloor()
        for start, block in _numbered(teacher, rows):
            logits = block.double()
            self._check_logits(teacher, logits, start)
            floor.add(logits)
        floor.check(teacher.path)

    def _check_top_k(self, teacher: TopKFile, rows: int) -> int:
        checks, start = TopKChecks(teacher, self.labels, self.num_classes), 0
        for block, labels in zip(teacher.blocks(rows), self.labels.blocks(rows), strict=True):
            checks.add(start, block, class_indices(labels))
            start += len(block)
        checks.finish()
        return checks.with_label

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
                f"({self._value:.6g} in row 0): a teacher cut to its top classes flips the blocking test; store "
                "log_probs and indices of these classes instead"
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
        teacher: logits `(N, K)`, a file with the fields of a `tpkd.geometry.TopK` as its arrays, or the directory of a
            teacher cache, whole or truncated.
        labels: integer classes `(N,)`, or probabilities `(N, K)` beside a whole teacher.
        class_names: K names, or a file of them as `tpkd.class_names.read_class_names` takes it; without it those that
            the files of logits carry, or the class numbers. All names that are there are compared.
        ids: N names of the examples, one a line, or an integer array; the row numbers without it. With a teacher cache,
            the sample id of each row, and its view id behind it where the cache has several views.
        log_probabilities: the logits are log-probabilities, which work alike; every row is checked to sum to one.
    """
    source = _open_teacher(teacher, ids)
    student_arrays = tuple(_open_logits(path) for path in students)
    if isinstance(source, TopKFile):
        examples, num_classes = source.examples, source.num_classes or student_arrays[0].shape[1]
        shape_from = str(teacher) if source.num_classes else f"{teacher} and {students[0]}"
    else:
        (examples, num_classes), shape_from = source.shape, str(teacher)
    for student in student_arrays:
        if student.shape != (examples, num_classes):
            raise InputError(
                f"{student.path}: expected {examples} examples x {num_classes} classes as in {shape_from}, found "
                f"{student.shape[0]} x {student.shape[1]}"
            )
    return DiagnosisInputs(
        student_arrays,
        source,
        _open_labels(labels, examples, num_classes, source),
        _choose_class_names(class_names, num_classes, (source, *student_arrays)),
        None if ids is None else check_ids(ids, examples, teacher),
        log_probabilities,
    )


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


def _open_teacher(path: Path, ids: Path | None) -> ArrayFile | TopKFile:
    if path.is_dir():
        return _open_cached_teacher(path, ids)
    return open_top_k_file(path) if is_top_k_file(path) else _open_logits(path)


def _open_cached_teacher(directory: Path, ids: Path | None) -> ArrayFile | TopKFile:
    """The cached rows of the samples that the ids name; without ids, a cache of one view in its own order."""
    cache = open_cache(directory)
    if ids is None:
        return cache.array() if cache.top_k is None else top_k_of_cache(cache)
    sample_ids, view_ids = read_keys(ids)
    if cache.top_k is None:
        return cache.array(sample_ids, view_ids)
    return top_k_of_cache(cache, sample_ids, view_ids)


def _open_labels(path: Path, examples: int, num_classes: int, teacher: ArrayFile | TopKFile) -> ArrayFile:
    array = open_array(path, key="labels")
    if array.dtype.is_floating_point:
        _check_soft_shape(array, (examples, num_classes), teacher)
        return array
    if array.dtype == torch.bool:
        raise InputError(f"{path}: expected integer class labels or probabilities, found {_name(array.dtype)}")
    if array.shape != (examples,):
        raise InputError(f"{path}: expected {examples} labels as in {teacher.path}, found shape {array.shape}")
    return array


def _check_soft_shape(labels: ArrayFile, shape: tuple[int, int], teacher: ArrayFile | TopKFile) -> None:
    if isinstance(teacher, TopKFile):
        raise InputError(
            f"{labels.path}: expected integer class labels, found {_name(labels.dtype)}: {teacher.path} kept only its "
            f"top {teacher.k} classes, and probabilities as labels need the logits of all"
        )
    if labels.shape != shape:
        raise InputError(
            f"{labels.path}: expected integer class labels of shape {shape[:1]} or probabilities of shape {shape}, "
            f"found {_name(labels.dtype)} of shape {labels.shape}"
        )


def _choose_class_names(
    given: Path | Sequence[str] | None, num_classes: int, arrays: tuple[ArrayFile | TopKFile, ...]
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


def _normalised(labels: Tensor) -> Tensor:
    """Probabilities that were looked at, divided by their sums, which rounding leaves near one."""
    shares = labels.double()
    return shares / shares.sum(-1, keepdim=True)


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
