"""The files of a diagnosis: opened, compared with each other and, block by block, looked at."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from tpkd.arrays import ArrayFile, open_array
from tpkd.arrays.text_files import DELIMITERS
from tpkd.class_names import check_class_names, known_names, read_class_names
from tpkd.diagnosis.ids import check_ids, read_keys
from tpkd.diagnosis.labels import IGNORED, Expected, LabelCheck, open_labels
from tpkd.diagnosis.teacher_floor import TeacherFloor
from tpkd.diagnosis.top_k_file import TopKChecks, TopKFile, is_top_k_file, open_top_k_file, top_k_of_cache
from tpkd.errors import InputError
from tpkd.geometry.inputs import class_indices
from tpkd.geometry.top_k import TopK
from tpkd.teacher.cache.read import open_cache
from tpkd.theory.diagnosis import are_probabilities

LARGEST_LOGIT = 1e100
"""Beyond this no difference of logits means anything, and sums of them would overflow."""

Form: TypeAlias = Literal["logits", "log-probabilities", "probabilities"]

_HALF = (torch.float16, torch.bfloat16)


class InputBlock(NamedTuple):
    """Some examples of all files, without the rows whose labels are to be ignored."""

    rows: Tensor
    """Their numbers in the files."""
    student: Tensor
    teacher: Tensor | TopK
    labels: Tensor
    read: int
    """How many rows were read for it."""


class Checked(NamedTuple):
    """What a look at every value found."""

    ignored: int
    """Rows that are left out."""
    known_examples: int
    """Examples that say something about the whole teacher: all others, unless it was truncated."""


@dataclass(frozen=True)
class DiagnosisInputs:
    """Students, teacher and labels of the same examples, whose shapes and dtypes fit together."""

    students: tuple[ArrayFile, ...]
    teacher: ArrayFile | TopKFile
    labels: ArrayFile
    """Integer classes `(N,)`, or probabilities `(N, K)`."""
    class_names: tuple[str, ...]
    ids: Path | None
    form: Form
    one_hot_labels: bool = False

    @property
    def known_class_names(self) -> tuple[str, ...] | None:
        """The names of the classes, None where they are only counted."""
        return _unless_counted(self.class_names)

    @property
    def examples(self) -> int:
        """How many examples every file has, those that are left out included."""
        return self.labels.shape[0]

    @property
    def num_classes(self) -> int:
        """How many classes there are."""
        return self.students[0].shape[1]

    @property
    def has_soft_labels(self) -> bool:
        """Whether the labels are probabilities."""
        return self.labels.dtype.is_floating_point

    def blocks(self, student: ArrayFile, rows: int, *, as_stored: bool = False) -> Iterator[InputBlock]:
        """The examples of one student in order, logits in float64 or `as_stored`, in the dtype of their file.

        A truncated teacher stays in its own precision, which decides how far its bounds can be trusted.
        """
        start = 0
        teacher_blocks: Iterator[Tensor | TopK] = iter(self.teacher.blocks(rows))
        sources = zip(student.blocks(rows), teacher_blocks, self.labels.blocks(rows), strict=True)
        for student_block, teacher_block, label_block in sources:
            z = self._as_logits(student_block, as_stored)
            teacher = teacher_block if isinstance(teacher_block, TopK) else self._as_logits(teacher_block, as_stored)
            labels = _normalised(label_block) if self.has_soft_labels else class_indices(label_block)
            block = InputBlock(_counted_from(start, labels), z, teacher, labels, len(labels))
            kept = self._kept(labels)
            if kept is not None:
                block = block._replace(**{name: getattr(block, name)[kept] for name in block._fields[:-1]})
            yield block
            start += len(label_block)

    def check_values(self, rows: int) -> Checked:
        """Look at every value of every file, `rows` of them at a time, before the first is worked on.

        Raises:
            InputError: names the file and its first wrong row.
        """
        check = LabelCheck(self.labels, self.num_classes)
        for start, block in _numbered(self.labels, rows):
            check.add(start, block)
        ignored = check.finish()
        for student in dict.fromkeys(self.students):
            for place, (numbers, block) in enumerate(self._examples_of(student, rows)):
                self._check_logits(student, block, numbers, is_first=place == 0)
        if isinstance(self.teacher, TopKFile):
            return Checked(ignored, self._check_top_k(self.teacher, rows))
        self._check_whole_teacher(self.teacher, rows)
        return Checked(ignored, self.examples - ignored)

    def _examples_of(self, source: ArrayFile, rows: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Row numbers and values of the examples that are not left out."""
        start = 0
        for block, labels in zip(source.blocks(rows), self.labels.blocks(rows), strict=True):
            kept, numbers, values = self._kept(labels), _counted_from(start, block), block
            start += len(block)
            if kept is not None:
                numbers, values = numbers[kept], values[kept]
            if len(numbers):
                yield numbers, values

    def _kept(self, labels: Tensor) -> Tensor | None:
        """Which of some rows are not left out; None where none is."""
        if self.has_soft_labels:
            return None
        ignored = class_indices(labels) == IGNORED
        return ~ignored if ignored.any() else None

    def _as_logits(self, values: Tensor, as_stored: bool) -> Tensor:
        if self.form == "probabilities":
            return values.double().log()
        return values if as_stored else values.double()

    def _check_whole_teacher(self, teacher: ArrayFile, rows: int) -> None:
        floor = TeacherFloor()
        for place, (numbers, block) in enumerate(self._examples_of(teacher, rows)):
            self._check_logits(teacher, block, numbers, is_first=place == 0)
            floor.add(block)
        floor.check(teacher.path)

    def _check_top_k(self, teacher: TopKFile, rows: int) -> int:
        checks, start = TopKChecks(teacher, self.labels, self.num_classes), 0
        for block, labels in zip(teacher.blocks(rows), self.labels.blocks(rows), strict=True):
            checks.add(start, block, class_indices(labels))
            start += len(block)
        checks.finish()
        return checks.with_label

    def _check_logits(self, source: ArrayFile, logits: Tensor, numbers: Tensor, *, is_first: bool) -> None:
        # One reduction finds NaN, infinity and absurd size alike: NaN compares false.
        least, most = (bound.item() for bound in logits.aminmax())
        if not (least >= -LARGEST_LOGIT and most <= LARGEST_LOGIT):
            _refuse_first_outlier(source, logits.double(), numbers)
        if self.form == "logits" and not is_first:
            return
        logits = logits.double()
        if self.form == "probabilities":
            _check_positive(source, logits, numbers)
            _check_total(source, logits.sum(-1), numbers, "probabilities that")
        elif self.form == "log-probabilities":
            _check_total(source, logits.exp().sum(-1), numbers, "log-probabilities whose exponentials")
        else:
            _refuse_probabilities(source, logits, numbers)


def open_inputs(
    students: list[Path],
    teacher: Path,
    labels: Path,
    *,
    class_names: Path | Sequence[str] | None = None,
    ids: Path | None = None,
    form: Form = "logits",
    label_column: str | None = None,
) -> DiagnosisInputs:
    """Open every file and check that they speak of the same examples and classes.

    Args:
        students: logits `(N, K)` of one student each, in the order of the trend.
        teacher: logits `(N, K)`, a file with the fields of a `tpkd.geometry.TopK` as its arrays, or the directory of a
            teacher cache, whole or truncated.
        labels: integer classes `(N,)`, -100 where a row is to be left out; names of known classes `(N,)`; or one-hot
            rows or, beside a whole teacher, probabilities `(N, K)`.
        class_names: K names, or a file of them as `tpkd.class_names.read_class_names` takes it; without it those that
            the files of logits carry, or the class numbers. All names that are there are compared.
        ids: N names of the examples, one a line, or an integer array; the row numbers without it. With a teacher cache,
            the sample id of each row, and its view id behind it where the cache has several views.
        form: what the files of students and of a whole teacher hold: "logits"; "log-probabilities", which work alike;
            or "probabilities", whose logarithms are taken. Every row of either is checked to sum to one.
        label_column: column or array of the labels in their file; without it `labels` or a usual name.
    """
    key = "probabilities" if form == "probabilities" else "logits"
    source = _open_teacher(teacher, ids, key)
    student_arrays = tuple(_open_logits(path, key) for path in students)
    if isinstance(source, TopKFile):
        examples, num_classes = source.examples, source.num_classes or student_arrays[0].shape[1]
        shape_from = str(teacher) if source.num_classes else f"{teacher} and {students[0]}"
    else:
        (examples, num_classes), shape_from = source.shape, str(teacher)
    for student in student_arrays:
        if student.shape != (examples, num_classes):
            transposed = student.shape == (num_classes, examples)
            hint = ": one of them is transposed; a row per example is expected" if transposed else ""
            raise InputError(
                f"{student.path}: expected {examples} examples x {num_classes} classes as in {shape_from}, found "
                f"{student.shape[0]} x {student.shape[1]}{hint}"
            )
    names, names_from = _choose_class_names(class_names, num_classes, (source, *student_arrays))
    top_k = source.k if isinstance(source, TopKFile) else None
    expected = Expected(examples, num_classes, teacher, _unless_counted(names), names_from, top_k)
    opened = open_labels(labels, expected, column=label_column)
    check_class_names(opened.array.class_names, names, found_in=str(labels), expected_in=names_from)
    return DiagnosisInputs(
        student_arrays,
        source,
        opened.array,
        names,
        None if ids is None else check_ids(ids, examples, teacher),
        form,
        opened.one_hot,
    )


def _unless_counted(names: tuple[str, ...]) -> tuple[str, ...] | None:
    return None if names == tuple(str(index) for index in range(len(names))) else names


def _counted_from(start: int, rows: Tensor) -> Tensor:
    return torch.arange(start, start + len(rows))


def _numbered(source: ArrayFile, rows: int) -> Iterator[tuple[int, Tensor]]:
    """The blocks of a file, each with the number of its first row."""
    start = 0
    for block in source.blocks(rows):
        yield start, block
        start += len(block)


def _open_logits(path: Path, key: str) -> ArrayFile:
    array = open_array(path, key=key)
    if len(array.shape) != 2:
        hint = "" if array.dtype.is_floating_point else "; are these labels?"
        raise InputError(f"{path}: expected logits of shape (examples, classes), found shape {array.shape}{hint}")
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


def _open_teacher(path: Path, ids: Path | None, key: str) -> ArrayFile | TopKFile:
    if path.is_dir():
        return _open_cached_teacher(path, ids)
    return open_top_k_file(path) if is_top_k_file(path) else _open_logits(path, key)


def _open_cached_teacher(directory: Path, ids: Path | None) -> ArrayFile | TopKFile:
    """The cached rows of the samples that the ids name; without ids, a cache of one view in its own order."""
    cache = open_cache(directory)
    if ids is None:
        return cache.array() if cache.top_k is None else top_k_of_cache(cache)
    sample_ids, view_ids = read_keys(ids)
    if cache.top_k is None:
        return cache.array(sample_ids, view_ids)
    return top_k_of_cache(cache, sample_ids, view_ids)


def _choose_class_names(
    given: Path | Sequence[str] | None, num_classes: int, arrays: tuple[ArrayFile | TopKFile, ...]
) -> tuple[tuple[str, ...], str]:
    """The given names, or those that files of logits carry, and where they are from; else the class numbers."""
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
    return names, source


def _refuse_first_outlier(source: ArrayFile, logits: Tensor, numbers: Tensor) -> None:
    row, column = (~(logits.abs() <= LARGEST_LOGIT)).nonzero()[0].tolist()
    raise InputError(
        f"{source.path}: row {numbers[row]}: expected finite logits, found {logits[row, column]} at class {column}"
    )


def _check_positive(source: ArrayFile, probabilities: Tensor, numbers: Tensor) -> None:
    wrong = probabilities <= 0
    if wrong.any():
        row, column = wrong.nonzero()[0].tolist()
        value = probabilities[row, column].item()
        hint = ": its logarithm is not finite; store logits or log-probabilities" if value == 0 else ""
        raise InputError(
            f"{source.path}: row {numbers[row]}: expected positive probabilities, found {value:g} at class "
            f"{column}{hint}"
        )


def _precision(source: ArrayFile) -> torch.dtype:
    """That in which numbers were stored; those of text files are often rounded to a few digits."""
    return torch.float16 if source.path.suffix in DELIMITERS else source.dtype


def _check_total(source: ArrayFile, sums: Tensor, numbers: Tensor, what: str) -> None:
    wrong = (sums - 1).abs() > (1e-2 if _precision(source) in _HALF else 1e-4)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        found = f"expected {what} sum to 1, found a sum of {sums[row].item():.6g}"
        raise InputError(f"{source.path}: row {numbers[row]}: {found}")


def _refuse_probabilities(source: ArrayFile, logits: Tensor, numbers: Tensor) -> None:
    if are_probabilities(logits, _precision(source)):
        raise InputError(
            f"{source.path}: row {numbers[0]}: expected logits, found probabilities (nonnegative, with sum 1); "
            "say so with --probabilities, or pass their logarithms with --log-probabilities"
        )


def _normalised(labels: Tensor) -> Tensor:
    """Probabilities that were looked at, divided by their sums, which rounding leaves near one."""
    shares = labels.double()
    return shares / shares.sum(-1, keepdim=True)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
