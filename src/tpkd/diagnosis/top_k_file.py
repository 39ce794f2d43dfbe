"""A teacher that kept only its top classes, on disk: the arrays of a `TopK` in one file, or a truncated cache."""

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from tpkd.arrays import ArrayFile, array_names, open_array
from tpkd.diagnosis.labels import IGNORED
from tpkd.errors import InputError
from tpkd.geometry.inputs import class_indices
from tpkd.geometry.top_k import EMPTY, TopK, check_top_k
from tpkd.teacher.cache.columns import TOP_K_COLUMNS
from tpkd.teacher.cache.read import Ids, TeacherCache

NEEDED = ("log_probs", "indices")
OPTIONAL = ("label_log_probs", "rest_log_probs")


@dataclass(frozen=True)
class TopKFile:
    """A truncated teacher whose shapes and dtypes were checked; rows are read on demand."""

    path: Path
    examples: int
    k: int
    dtype: torch.dtype
    """Of the kept log-probabilities: the precision of what is said about the teacher."""
    has_rest: bool
    """Whether the total of the classes that were not kept is stored."""
    _read: Callable[[int], Iterator[TopK]] = field(repr=False)
    num_classes: int | None = None
    """None where a file does not say."""
    class_names: tuple[str, ...] | None = field(default=None, repr=False)
    labels_sha256: str | None = field(default=None, repr=False)
    """Of the labels of all rows, in their order, where the teacher is bound to them."""

    def blocks(self, rows: int) -> Iterator[TopK]:
        """The rows in order, at most `rows` at a time: values in the dtype of the file, classes in int64."""
        yield from self._read(rows)


def is_top_k_file(path: Path) -> bool:
    """Whether the names of a file's arrays are those of a truncated teacher.

    A file of one array is whole whatever its name, as ever, unless it holds bare indices.

    Raises:
        InputError: the names are those of both, or of half a truncated teacher.
    """
    names = array_names(path)
    found = [name for name in TOP_K_COLUMNS if name in names]
    if not found or (len(names) == 1 and names != ("indices",)):
        return False
    if "logits" in names:
        raise InputError(
            f"{path}: expected either the logits of all classes or the log_probs and indices of the largest, found "
            f"logits and {', '.join(found)}"
        )
    if not set(NEEDED) <= set(names):
        raise InputError(
            f"{path}: expected log_probs and indices (N, k) of a teacher's largest classes, and optionally "
            f"label_log_probs and rest_log_probs (N), found {', '.join(names)}"
        )
    return True


def open_top_k_file(path: Path) -> TopKFile:
    """Open a file whose arrays are the fields of a `TopK`.

    Raises:
        InputError: names the file, and the array whose shape or type does not fit.
    """
    names = [name for name in TOP_K_COLUMNS if name in array_names(path)]
    arrays = {name: _open_named(path, name) for name in names}
    log_probs, indices = arrays["log_probs"], arrays["indices"]
    if len(log_probs.shape) != 2:
        _refuse(path, "log_probs", f"shape (examples, kept classes), found shape {log_probs.shape}")
    if log_probs.shape[0] < 1:
        raise InputError(f"{path}: expected at least one example, found none")
    if indices.shape != log_probs.shape:
        _refuse(path, "indices", f"the shape of log_probs {log_probs.shape}, found shape {indices.shape}")
    if indices.dtype.is_floating_point or indices.dtype == torch.bool:
        _refuse(path, "indices", f"integer classes, found {_name(indices.dtype)}")
    for name, array in arrays.items():
        if name != "indices" and not array.dtype.is_floating_point:
            _refuse(path, name, f"floating-point log-probabilities, found {_name(array.dtype)}")
        if name in OPTIONAL and array.shape != log_probs.shape[:1]:
            _refuse(path, name, f"shape {log_probs.shape[:1]}, one number per example, found shape {array.shape}")

    def read(rows: int) -> Iterator[TopK]:
        for blocks in zip(*(arrays[name].blocks(rows) for name in names), strict=True):
            columns = dict(zip(names, blocks, strict=True))
            yield TopK(**columns | {"indices": class_indices(columns["indices"])})

    examples, k = log_probs.shape
    has_rest = "rest_log_probs" in arrays
    return TopKFile(path, examples, k, log_probs.dtype, has_rest, read, class_names=log_probs.class_names)


def top_k_of_cache(cache: TeacherCache, sample_ids: Ids | None = None, view_ids: Ids | None = None) -> TopKFile:
    """The rows of a truncated cache in the order of the ids, or in its own."""
    assert cache.top_k is not None
    if sample_ids is None:
        next(iter(cache.blocks(1)))  # refuses a cache of several views
        examples = len(cache)
    else:
        examples = len(cache.locate(sample_ids, view_ids))

    def read(rows: int) -> Iterator[TopK]:
        for block in cache.blocks(rows, sample_ids, view_ids):
            assert isinstance(block, TopK)
            yield block

    return TopKFile(
        cache.directory,
        examples,
        cache.top_k,
        getattr(torch, cache.recipe.dtype),
        True,
        read,
        cache.recipe.num_classes,
        cache.recipe.class_names,
        cache.manifest.labels_sha256 if sample_ids is None else None,
    )


class TopKChecks:
    """What is looked at in every row of a truncated teacher, beside its labels, before the first is worked on."""

    def __init__(self, teacher: TopKFile, labels: ArrayFile, num_classes: int) -> None:
        """Nothing seen yet."""
        self.teacher, self.labels, self.num_classes = teacher, labels, num_classes
        self.with_label = 0
        self._hash = hashlib.sha256()

    def add(self, start: int, top_k: TopK, labels: Tensor) -> None:
        """Look at a block that begins at row `start`; of rows that are left out, only at their labels."""
        self._hash.update(labels.numpy().astype("<i8").tobytes())
        kept_rows = labels != IGNORED
        numbers = torch.arange(start, start + len(labels))[kept_rows]
        if len(numbers):
            self._add_rows(numbers, top_k[kept_rows], labels[kept_rows])

    def _add_rows(self, numbers: Tensor, top_k: TopK, labels: Tensor) -> None:
        path = self.teacher.path
        try:
            check_top_k(top_k, self.num_classes, name=str(path))
        except ValueError as error:
            raise InputError(_with_row(str(error), path, numbers)) from error
        kept = top_k.indices != EMPTY
        empty = ~kept.any(-1)
        if empty.any():
            row = int(numbers[empty][0])
            found = "found none: leave the row out of all files"
            raise InputError(f"{path}: indices: row {row}: expected at least one class, {found}")
        is_label = kept & (top_k.indices == labels.unsqueeze(-1))
        log_probs = top_k.log_probs.double().masked_fill(~kept, -torch.inf)
        among = log_probs.masked_fill(~is_label, -torch.inf).amax(-1)
        log_label, known = among, is_label.any(-1)
        if top_k.label_log_probs is not None:
            stored = top_k.label_log_probs.double()
            self._check_same_label(numbers, stored, among, known)
            log_label, known = torch.where(stored.isnan(), among, stored), known | ~stored.isnan()
        # Where no class is left out, whatever is given as their total is not looked at.
        all_given = known & ((kept & ~is_label).sum(-1) + 1 >= self.num_classes)
        self._check_total(numbers, top_k, log_probs.masked_fill(is_label, -torch.inf), log_label, all_given)
        self.with_label += int(known.sum())

    def _check_same_label(self, numbers: Tensor, stored: Tensor, among: Tensor, is_among: Tensor) -> None:
        differs = is_among & ~stored.isnan() & ~torch.isclose(stored, among, rtol=_slack(self.teacher.dtype), atol=1e-4)
        if differs.any():
            row = int(differs.nonzero()[0])
            raise InputError(
                f"{self.teacher.path}: label_log_probs: row {numbers[row]}: expected {among[row].item():g}, which "
                f"log_probs has for the label in {self.labels.path}, found {stored[row].item():g}: are these the "
                "labels that the teacher's file was made with?"
            )

    def _check_total(self, numbers: Tensor, top_k: TopK, others: Tensor, log_label: Tensor, all_given: Tensor) -> None:
        """What is given sums to at most one, and with the rest to one; raw logits and other labels seldom do."""
        given = torch.cat([others, log_label.unsqueeze(-1)], dim=-1)
        total = given.exp().sum(-1)
        rounding = _slack(self.teacher.dtype) * (1 + (given.exp() * given.clamp(min=-1e4).abs()).sum(-1))
        expected, wrong = "at most 1", total > 1 + rounding
        if top_k.rest_log_probs is not None:
            total = total + top_k.rest_log_probs.double().exp().masked_fill(all_given, 0.0)
            expected, wrong = "1", (total - 1).abs() > rounding
        if wrong.any():
            row = int(wrong.nonzero()[0])
            parts = ["log_probs", *(name for name in OPTIONAL if getattr(top_k, name) is not None)]
            raise InputError(
                f"{self.teacher.path}: row {numbers[row]}: expected {', '.join(parts)} to be log-probabilities of "
                f"different classes with a total of {expected}, found a total of {total[row].item():.6g}: are these "
                "logits, or other labels than the teacher's file was made with?"
            )

    def finish(self) -> None:
        """What can only be said after the last row."""
        expected, found = self.teacher.labels_sha256, self._hash.hexdigest()
        if expected is not None and found != expected:
            raise InputError(
                f"{self.labels.path}: expected the labels that {self.teacher.path} was built with, found others "
                f"(SHA-256 {found}, not {expected}): a truncated cache keeps the log-probability of its own labels only"
            )
        if not self.with_label:
            raise InputError(
                f"{self.teacher.path}: expected the label's log-probability for some examples, found it for none: "
                "nothing could be said about the whole teacher; add label_log_probs"
            )


def _open_named(path: Path, name: str) -> ArrayFile:
    try:
        return open_array(path, key=name)
    except InputError as error:
        raise InputError(f"{path}: {name}: {str(error).removeprefix(f'{path}: ')}") from error


def _slack(dtype: torch.dtype) -> float:
    """How far a log-probability of size one may be off after it was rounded."""
    return max(1e-4, 2 * torch.finfo(dtype).eps)


def _with_row(message: str, path: Path, numbers: Tensor) -> str:
    """A message about a row of a block, as one about a row of the file: key first, then the row."""
    found = re.fullmatch(r"(\w+): (.*), got (.*) in row (\d+)", message.removeprefix(f"{path}: "))
    if found is None:
        return message
    name, expected, value, row = found.groups()
    return f"{path}: {name}: row {numbers[int(row)]}: {expected}, found {value}"


def _refuse(path: Path, name: str, expected_and_found: str) -> None:
    raise InputError(f"{path}: {name}: expected {expected_and_found}")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
