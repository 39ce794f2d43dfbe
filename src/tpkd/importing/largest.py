"""The largest log-probabilities of a teacher in a file: the arrays of a `TopK`, which become a truncated cache."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import torch
from torch import Tensor

from tpkd.arrays import ArrayFile
from tpkd.class_names import check_class_names
from tpkd.data.class_map import ClassMap
from tpkd.data.dataset import Dataset
from tpkd.diagnosis.top_k_file import OPTIONAL, TopKChecks, open_top_k_file
from tpkd.errors import InputError
from tpkd.geometry.top_k import EMPTY, TopK
from tpkd.importing.samples import Positions
from tpkd.importing.source import Source, rows_per_block
from tpkd.importing.stream import Columns


class LargestSource(Source):
    """`log_probs` and `indices` `(N, k)`, `label_log_probs` and `rest_log_probs` `(N)`."""

    num_views = 1

    def __init__(self, path: Path, dataset: Dataset, num_views: int, class_map: ClassMap | None) -> None:
        """Open the file and compare it with the data.

        Raises:
            InputError: names the file and the array, what was expected and what was found.
        """
        if num_views > 1:
            raise InputError(f"{path}: expected logits (N, views, classes), because every sample has {num_views} views")
        if class_map is not None:
            raise InputError(f"{path}: expected indices of the classes of {dataset.name}, and no teacher.class_names")
        self._file = open_top_k_file(path)
        self.path, self.rows, self.top_k = path, self._file.examples, self._file.k
        self._dataset, self._block_rows = dataset, rows_per_block(32 * (self._file.k + 1))
        if self._file.k > dataset.num_classes:
            expected = f"at most the {dataset.num_classes} classes of {dataset.name} per row"
            raise InputError(f"{path}: log_probs: expected {expected}, found {self._file.k}")
        check_class_names(self._file.class_names, dataset.class_names, found_in=str(path), expected_in=dataset.name)
        first = next(iter(self._file.blocks(1)))
        for name in OPTIONAL:
            if getattr(first, name) is None:
                problem = f"expected {name} (N) beside log_probs and indices, found none"
                raise InputError(f"{path}: {problem}; a cache keeps it, computed before anything is rounded")

    def parts(self) -> Iterator[Columns]:
        """The fields of a `TopK`, largest classes first, as a cache keeps them."""
        for block in self._file.blocks(self._block_rows):
            # Of equal ones the lower class first, as where a cache is built.
            by_class = block.indices.argsort(dim=-1)
            order = block.log_probs.double().gather(-1, by_class).sort(dim=-1, descending=True, stable=True).indices
            order = by_class.gather(-1, order)
            columns = {item.name: getattr(block, item.name) for item in fields(TopK)}
            yield columns | {name: columns[name].gather(-1, order) for name in ("log_probs", "indices")}

    def check(self, positions: Positions, dtype: str) -> None:
        """Log-probabilities of different classes, in every place, which with the label and the rest sum to one."""
        y = torch.from_numpy(self._dataset.labels)
        labels = ArrayFile(Path(self._dataset.name), (len(y),), y.dtype, lambda rows: iter(torch.split(y, rows)))
        checks, start = TopKChecks(self._file, labels, self._dataset.num_classes), 0
        for block in self._file.blocks(self._block_rows):
            places = torch.from_numpy(positions[start : start + len(block)])
            kept = (places >= 0).nonzero().flatten()
            if len(kept):
                # In the place of a row that is left out, another one: what is wrong with it does not matter.
                rows = torch.where(places >= 0, torch.arange(len(block)), kept[0])
                self._check_whole(start, block[rows], y[places[rows]])
                checks.add(start, block[rows], y[places[rows]])
            start += len(block)

    def _check_whole(self, start: int, block: TopK, labels: Tensor) -> None:
        """What a loss may do without, and a cache may not."""
        assert block.label_log_probs is not None
        self._refuse(start, block.indices == EMPTY, "indices", "a class in every place", block.indices)
        for name in ("log_probs", "label_log_probs"):
            values = getattr(block, name)
            self._refuse(start, ~values.isfinite(), name, "finite log-probabilities", values)
        is_kept = (block.indices == labels.unsqueeze(-1)).any(-1)
        least = block.log_probs.double().amin(-1)
        above = ~is_kept & (block.label_log_probs.double() > least + 1e-2 * least.abs().clamp(min=1))
        expected = "at most the least of log_probs for a label that is not kept"
        self._refuse(start, above, "label_log_probs", expected, block.label_log_probs)

    def _refuse(self, start: int, wrong: Tensor, name: str, expected: str, values: Tensor) -> None:
        if wrong.any():
            row, *place = wrong.nonzero()[0].tolist()
            found = f"found {values[row, *place].item():g}"
            raise InputError(f"{self.path}: {name}: row {start + row}: expected {expected}, {found}")
