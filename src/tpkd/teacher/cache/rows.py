"""The rows of a cache: their keys (sample id, view id), their order, and how a row is found."""

import hashlib
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64

from tpkd.teacher.cache.keys import SPARSEST, Keys, as_keys, check_width, twice
from tpkd.teacher.cache.runs import find_runs, run_index

_UNIQUE_RUNS = 1024
"""Keys that fall into at most so many runs are told apart without a table of all rows."""


@dataclass(frozen=True, eq=False)
class CacheRows:
    """The rows of a cache to build: one key per row, in order, and the model's inputs for any run of rows.

    Args:
        sample_ids: stable id of each row's sample.
        view_ids: which fixed view of it; 0 where there is only one.
        inputs: `inputs(start, stop)` gives what the model takes for the rows start..stop-1; called in another thread
            while the model runs, once for each run of rows.
        labels: the label of each row, which a cache of the largest classes needs, because it keeps the label's too.
        tokens: `(rows, positions + 1)` of a language model's text; the labels are then those after the first.

    Example:
        >>> images = np.arange(6.0).reshape(3, 2)
        >>> rows = CacheRows.of_views(np.array([7, 8, 9]), 2, lambda samples, views: images[samples] + views[:, None])
        >>> len(rows), rows.sample_ids.tolist(), rows.view_ids.tolist()
        (6, [7, 7, 8, 8, 9, 9], [0, 1, 0, 1, 0, 1])
        >>> rows.inputs(1, 3)
        array([[1., 2.],
               [2., 3.]])
    """

    sample_ids: Keys
    view_ids: Keys
    inputs: Callable[[int, int], Any]
    labels: Int64[np.ndarray, "rows *positions"] | None = None
    tokens: Int64[np.ndarray, "rows length"] | None = None

    def __post_init__(self) -> None:
        """Refuse keys that could not be told apart."""
        object.__setattr__(self, "sample_ids", as_keys("sample_ids", self.sample_ids))
        object.__setattr__(self, "view_ids", as_keys("view_ids", self.view_ids))
        if not len(self.sample_ids):
            raise ValueError("sample_ids: expected at least one row, got none")
        _check_unique(self.sample_ids, self.view_ids)
        if self.tokens is not None:
            _check_tokens(self.tokens)
            object.__setattr__(self, "labels", self.tokens[:, 1:])
        elif self.labels is not None:
            object.__setattr__(self, "labels", as_keys("labels", self.labels))
        if self.labels is not None and len(self.labels) != len(self.sample_ids):
            raise ValueError(f"labels: expected {len(self.sample_ids)} as sample_ids has, got {len(self.labels)}")

    @classmethod
    def of_views(
        cls,
        sample_ids: np.ndarray,
        num_views: int,
        inputs: Callable[[np.ndarray, np.ndarray], Any],
        labels: np.ndarray | None = None,
    ) -> "CacheRows":
        """All views of one sample after the other; `inputs(positions, view_ids)` takes positions in `sample_ids`.

        `labels` are those of the samples, in the same order.
        """
        if labels is not None and len(labels) != len(sample_ids):
            raise ValueError(f"labels: expected {len(sample_ids)} as sample_ids has, got {len(labels)}")

        def inputs_of_rows(start: int, stop: int) -> Any:
            return inputs(*np.divmod(np.arange(start, stop), num_views))

        return cls(
            np.repeat(np.asarray(sample_ids), num_views),
            np.tile(np.arange(num_views), len(sample_ids)),
            inputs_of_rows,
            None if labels is None else np.repeat(np.asarray(labels), num_views),
        )

    def __len__(self) -> int:
        """How many rows."""
        return len(self.sample_ids)


def _check_tokens(tokens: np.ndarray) -> None:
    if tokens.ndim != 2 or tokens.dtype != np.int64 or tokens.shape[1] < 2:
        found = f"{tokens.dtype} of shape {tokens.shape}"
        raise ValueError(f"tokens: expected int64 of shape (rows, length), length at least 2, got {found}")


def _check_unique(sample_ids: Keys, view_ids: Keys) -> None:
    width = 1 + int(view_ids.max()) if len(view_ids) == len(sample_ids) else 0
    if 1 <= width <= SPARSEST and run_index([find_runs(sample_ids, view_ids, width, _UNIQUE_RUNS)], width) is not None:
        return
    RowIndex(sample_ids, view_ids)


class RowIndex:
    """Finds the row of a key by one binary search for the sample and a table of its views, all of it in memory.

    Args:
        sample_ids: of all rows, in order.
        view_ids: of all rows, in order; numbers from 0, as nearly every sample has nearly every view.
        first_row: the number of the first row.

    Example:
        >>> index = RowIndex(np.array([30, 10, 10]), np.array([0, 1, 0]))
        >>> index.find(np.array([10, 30, 30]), np.array([0, 0, 1]))
        array([ 2,  0, -1])
    """

    def __init__(self, sample_ids: Keys, view_ids: Keys, first_row: int = 0) -> None:
        """Fill the table; a duplicate key is refused."""
        if len(sample_ids) != len(view_ids):
            raise ValueError(f"view_ids: expected {len(sample_ids)} as sample_ids has, got {len(view_ids)}")
        rows = np.arange(first_row, first_row + len(sample_ids))
        self._samples = np.unique(sample_ids)
        lowest, highest = int(view_ids.min(initial=0)), int(view_ids.max(initial=0))
        self._width = check_width(len(self._samples), len(rows), lowest, highest)
        places = self._samples.searchsorted(sample_ids) * self._width + view_ids
        self._table = np.full(len(self._samples) * self._width, -1)
        self._table[places] = rows
        lost = np.flatnonzero(self._table[places] != rows)
        if len(lost):
            raise twice(sample_ids[lost[0]], view_ids[lost[0]])

    def find(self, sample_ids: Keys, view_ids: Keys) -> Keys:
        """The row of each key, -1 where there is none."""
        if not len(self._samples):
            return np.full(len(sample_ids), -1)
        place = np.minimum(self._samples.searchsorted(sample_ids), len(self._samples) - 1)
        known = (self._samples[place] == sample_ids) & (view_ids >= 0) & (view_ids < self._width)
        return np.where(known, self._table[np.where(known, place * self._width + view_ids, 0)], -1)


def hash_labels(rows: CacheRows, num_classes: int) -> str:
    """The SHA-256 of the labels of all rows in order; of text that of all tokens.

    Raises:
        ValueError: there are none, or one is not a class.

    Example:
        >>> first, second = (CacheRows([7, 8], [0, 0], None, labels) for labels in ([0, 1], [1, 0]))
        >>> hash_labels(first, 2) == hash_labels(second, 2)
        False
    """
    labels = rows.labels if rows.tokens is None else rows.tokens
    if labels is None:
        raise ValueError("labels: expected the label of every row, which a cache with top_k keeps, got none")
    wrong = np.argwhere((labels < 0) | (labels >= num_classes))
    if len(wrong):
        row, *_ = place = tuple(wrong[0])
        name = "labels" if rows.tokens is None else "tokens"
        raise ValueError(
            f"{name}: expected classes from 0 to {num_classes - 1}, got {labels[place]} for sample "
            f"{rows.sample_ids[row]}, view {rows.view_ids[row]}"
        )
    return hashlib.sha256(np.ascontiguousarray(labels, "<i8").data).hexdigest()


def hash_keys(sample_ids: Keys, view_ids: Keys) -> str:
    """The SHA-256 of all keys in order.

    Example:
        >>> hash_keys(np.array([1, 2]), np.array([0, 0])) == hash_keys(np.array([2, 1]), np.array([0, 0]))
        False
    """
    return hash_blocks((sample_ids,), (view_ids,))


def hash_blocks(sample_ids: Iterable[Keys], view_ids: Iterable[Keys]) -> str:
    """The SHA-256 of all keys in order, given in blocks.

    Example:
        >>> samples, views = np.array([1, 2]), np.array([0, 0])
        >>> hash_blocks([samples[:1], samples[1:]], [views]) == hash_keys(samples, views)
        True
    """
    digest = hashlib.sha256()
    for block in itertools.chain(sample_ids, view_ids):
        digest.update(np.ascontiguousarray(block, "<i8").data)
    return digest.hexdigest()
