"""The rows of a cache: their keys (sample id, view id), their order, and how a row is found."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int64

Keys = Int64[np.ndarray, "_"]

SPARSEST = 64
"""An index may have this many places for each row; more means that the view ids are not view numbers."""


@dataclass(frozen=True, eq=False)
class CacheRows:
    """The rows of a cache to build: one key per row, in order, and the model's inputs for any run of rows.

    Args:
        sample_ids: stable id of each row's sample.
        view_ids: which fixed view of it; 0 where there is only one.
        inputs: `inputs(start, stop)` gives what the model takes for the rows start..stop-1; called in another thread
            while the model runs, once for each run of rows.
        labels: the label of each row, which a cache of the largest classes needs, because it keeps the label's too.

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
    labels: Keys | None = None

    def __post_init__(self) -> None:
        """Refuse keys that could not be told apart."""
        object.__setattr__(self, "sample_ids", as_keys("sample_ids", self.sample_ids))
        object.__setattr__(self, "view_ids", as_keys("view_ids", self.view_ids))
        if not len(self.sample_ids):
            raise ValueError("sample_ids: expected at least one row, got none")
        RowIndex(self.sample_ids, self.view_ids)
        if self.labels is not None:
            object.__setattr__(self, "labels", as_keys("labels", self.labels))
            if len(self.labels) != len(self.sample_ids):
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
        positions = np.repeat(np.arange(len(sample_ids)), num_views)
        view_ids = np.tile(np.arange(num_views), len(sample_ids))
        return cls(
            np.asarray(sample_ids)[positions],
            view_ids,
            lambda start, stop: inputs(positions[start:stop], view_ids[start:stop]),
            None if labels is None else np.asarray(labels)[positions],
        )

    def __len__(self) -> int:
        """How many rows."""
        return len(self.sample_ids)


class RowIndex:
    """Finds the row of a key by one binary search for the sample and a table of its views.

    Args:
        sample_ids: of all rows, in order.
        view_ids: of all rows, in order; numbers from 0, as nearly every sample has nearly every view.
        written: which rows may be found; all of them without it.

    Example:
        >>> index = RowIndex(np.array([30, 10, 10]), np.array([0, 1, 0]))
        >>> index.find(np.array([10, 30, 30]), np.array([0, 0, 1]))
        array([ 2,  0, -1])
    """

    def __init__(self, sample_ids: Keys, view_ids: Keys, written: Bool[np.ndarray, "_"] | None = None) -> None:
        """Fill the table; a duplicate key is refused."""
        if len(sample_ids) != len(view_ids):
            raise ValueError(f"view_ids: expected {len(sample_ids)} as sample_ids has, got {len(view_ids)}")
        rows = np.arange(len(sample_ids)) if written is None else np.flatnonzero(written)
        self._sample_ids, self._view_ids = sample_ids, view_ids
        self._samples = np.unique(sample_ids[rows])
        self._width = 1 + int(view_ids[rows].max(initial=0))
        if view_ids[rows].min(initial=0) < 0 or len(self._samples) * self._width > SPARSEST * len(rows):
            raise ValueError(f"view_ids: expected small numbers from 0, got {view_ids.min()} to {view_ids.max()}")
        places = self._samples.searchsorted(sample_ids[rows]) * self._width + view_ids[rows]
        self._table = np.full(max(len(self._samples) * self._width, 1), -1)
        self._table[places] = rows
        lost = np.flatnonzero(self._table[places] != rows)
        if len(lost):
            row = rows[lost[0]]
            raise ValueError(
                f"sample_ids: expected every (sample id, view id) once, got sample {sample_ids[row]}, "
                f"view {view_ids[row]} more than once"
            )

    def find(self, sample_ids: Keys, view_ids: Keys) -> Keys:
        """The row of each key, -1 where there is none."""
        # Whatever place a foreign key leads to, the row found there has another key.
        places = self._samples.searchsorted(sample_ids) * self._width + view_ids
        rows: Keys = self._table.take(places, mode="clip")
        if not len(self._sample_ids):
            return rows
        same = (self._sample_ids.take(rows) == sample_ids) & (self._view_ids.take(rows) == view_ids)
        return np.where(same, rows, -1)


def as_keys(name: str, values: Any) -> Keys:
    """Ids as a one-dimensional int64 array; anything else is refused by its name."""
    keys = np.asarray(values)
    if keys.ndim != 1 or keys.dtype.kind not in "iu":
        raise ValueError(f"{name}: expected integers of shape (rows,), got {keys.dtype} of shape {keys.shape}")
    return keys.astype(np.int64, copy=False)


def hash_labels(rows: CacheRows, num_classes: int) -> str:
    """The SHA-256 of the labels of all rows in order.

    Raises:
        ValueError: there are none, or one is not a class.

    Example:
        >>> first, second = (CacheRows([7, 8], [0, 0], None, labels) for labels in ([0, 1], [1, 0]))
        >>> hash_labels(first, 2) == hash_labels(second, 2)
        False
    """
    labels = rows.labels
    if labels is None:
        raise ValueError("labels: expected the label of every row, which a cache with top_k keeps, got none")
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(wrong):
        row = wrong[0]
        raise ValueError(
            f"labels: expected classes from 0 to {num_classes - 1}, got {labels[row]} for sample "
            f"{rows.sample_ids[row]}, view {rows.view_ids[row]}"
        )
    return hashlib.sha256(labels.astype("<i8").tobytes()).hexdigest()


def hash_keys(sample_ids: Keys, view_ids: Keys) -> str:
    """The SHA-256 of all keys in order.

    Example:
        >>> hash_keys(np.array([1, 2]), np.array([0, 0])) == hash_keys(np.array([2, 1]), np.array([0, 0]))
        False
    """
    digest = hashlib.sha256(sample_ids.astype("<i8").tobytes())
    digest.update(view_ids.astype("<i8").tobytes())
    return digest.hexdigest()
