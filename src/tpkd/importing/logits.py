"""Logits of all classes in a file, of any format that holds an array."""

import math
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from tpkd.arrays import ArrayFile, open_array
from tpkd.class_names import check_class_names
from tpkd.data.class_map import ClassMap
from tpkd.data.dataset import Dataset
from tpkd.diagnosis.teacher_floor import TeacherFloor
from tpkd.errors import InputError
from tpkd.importing.samples import Positions
from tpkd.importing.source import Source, rows_per_block
from tpkd.importing.stream import Columns
from tpkd.theory.diagnosis import are_probabilities


class LogitsSource(Source):
    """`(N, K)`, or `(N, views, K)` where every sample has several views."""

    top_k = None

    def __init__(self, path: Path, dataset: Dataset, num_views: int, class_map: ClassMap | None) -> None:
        """Open the file and compare its shape, type and class names with the data.

        Args:
            path: the file.
            dataset: the training samples.
            num_views: views of each sample.
            class_map: from the classes of the file to those of the data; None where they are the same.

        Raises:
            InputError: names the file, what was expected and what was found.
        """
        array = open_array(path)
        classes = dataset.class_names if class_map is None else class_map.teacher_names
        expected_in = dataset.name if class_map is None else "teacher.class_names"
        _check_shape(array, num_views, len(classes), expected_in)
        check_class_names(array.class_names, classes, found_in=str(path), expected_in=expected_in)
        self.path, self.rows, self.num_views = path, array.shape[0], num_views
        self._array, self._class_map = array, class_map
        self._block_rows = rows_per_block(8 * math.prod(array.shape[1:]))

    def parts(self) -> Iterator[Columns]:
        """Logits of the classes of the data."""
        for block in self._array.blocks(self._block_rows):
            logits = block.reshape(-1, block.shape[-1])
            yield {"logits": logits if self._class_map is None else self._class_map.apply(logits)}

    def check(self, positions: Positions, dtype: str) -> None:
        """Finite values that the precision holds, of a teacher that answers with logits of all classes."""
        floor, start = TeacherFloor(), 0
        for block in self._array.blocks(self._block_rows):
            kept = torch.from_numpy(positions[start : start + len(block)] >= 0)
            logits = block.double().reshape(len(block), -1, block.shape[-1])
            self._check_values(start, logits, kept, dtype)
            answers = logits[kept].flatten(0, 1)
            if start == 0 and are_probabilities(answers, self._array.dtype):
                raise InputError(
                    f"{self.path}: row 0: expected logits or log-probabilities, found probabilities (nonnegative, with "
                    "sum 1); import their logarithms"
                )
            if len(answers):
                floor.add(answers)
            start += len(block)
        floor.check(self.path)

    def _check_values(self, start: int, logits: Tensor, kept: Tensor, dtype: str) -> None:
        wrong = ~(logits.abs() <= torch.finfo(getattr(torch, dtype)).max)  # NaN compares false
        wrong &= kept.view(-1, 1, 1)
        if not wrong.any():
            return
        row, view, column = wrong.nonzero()[0].tolist()
        value = logits[row, view, column].item()
        place = f"row {start + row}" + (f", view {view}" if self.num_views > 1 else "")
        expected, way_out = "finite logits", ""
        if math.isfinite(value):
            expected, way_out = f"logits that {dtype} holds", "; set teacher.cache_dtype to float32"
        raise InputError(f"{self.path}: {place}: expected {expected}, found {value:g} at class {column}{way_out}")


def _check_shape(array: ArrayFile, num_views: int, num_classes: int, expected_in: str) -> None:
    shapes = [(num_views, num_classes)] + [(num_classes,)] * (num_views == 1)
    if array.shape[1:] not in shapes:
        wanted = "(N, classes)" if num_views == 1 else "(N, views, classes)"
        sizes = ", ".join(map(str, shapes[-1]))
        found = f"found shape {tuple(array.shape)}"
        raise InputError(f"{array.path}: expected logits {wanted} = (N, {sizes}) as in {expected_in}, {found}")
    if not array.dtype.is_floating_point:
        found = str(array.dtype).removeprefix("torch.")
        raise InputError(f"{array.path}: expected floating-point logits, found {found}")
