"""The rows of a cache: their keys (sample id, view id), their order, and how a row is found."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64

Keys = Int64[np.ndarray, "rows"]


@dataclass(frozen=True, eq=False)
class CacheRows:
    """What a cache shall hold: one key a row, in order, and the model's inputs for any run of rows.

    Args:
        sample_ids: stable id of each row's sample.
        view_ids: which fixed view of it; 0 where there is only one.
        inputs: `inputs(start, stop)` gives what the model takes for the rows start..stop-1; called in another thread
            while the model runs, once for each run of rows.

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

    def __post_init__(self) -> None:
        """Refuse keys that could not be told apart."""
        object.__setattr__(self, "sample_ids", as_keys("sample_ids", self.sample_ids))
        object.__setattr__(self, "view_ids", as_keys("view_ids", self.view_ids))
        if not len(self.sample_ids):
            raise ValueError("sample_ids: expected at least one row, got none")
        RowIndex(self.sample_ids, self.view_ids)

    @classmethod
    def of_views(
        cls, sample_ids: np.ndarray, num_views: int, inputs: Callable[[np.ndarray, np.ndarray], Any]
    ) -> "CacheRows":
        """All views of one sample after the other; `inputs(positions, view_ids)` takes positions in `sample_ids`."""
        positions = np.repeat(np.arange(len(sample_ids)), num_views)
        view_ids = np.tile(np.arange(num_views), len(sample_ids))
        return cls(
            np.asarray(sample_ids)[positions],
            view_ids,
            lambda start, stop: inputs(positions[start:stop], view_ids[start:stop]),
        )

    def __len__(self) -> int:
        """How many rows."""
        return len(self.sample_ids)


class RowIndex:
    """Finds the row of a key by two binary searches, whatever the ids and however sparse the views.

    Example:
        >>> index = RowIndex(np.array([30, 10, 10]), np.array([0, 1, 0]))
        >>> index.find(np.array([10, 30, 30]), np.array([0, 0, 1]))
        array([ 2,  0, -1])
    """

    def __init__(self, sample_ids: Keys, view_ids: Keys) -> None:
        """Sort the keys of all rows, in row order."""
        if len(sample_ids) != len(view_ids):
            raise ValueError(f"view_ids: expected {len(sample_ids)} as sample_ids has, got {len(view_ids)}")
        self._samples = np.unique(sample_ids)
        self._views = np.unique(view_ids)
        keys = self._keys(sample_ids, view_ids)
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]
        repeated = np.flatnonzero(self._sorted[1:] == self._sorted[:-1])
        if len(repeated):
            row = self._order[repeated[0]]
            raise ValueError(
                f"sample_ids: expected every (sample id, view id) once, got sample {sample_ids[row]}, "
                f"view {view_ids[row]} more than once"
            )

    @property
    def num_samples(self) -> int:
        """How many different samples."""
        return len(self._samples)

    @property
    def num_views(self) -> int:
        """How many different views."""
        return len(self._views)

    def find(self, sample_ids: Keys, view_ids: Keys) -> Keys:
        """The row of each key, -1 where there is none."""
        if not len(self._sorted):
            return np.full(len(sample_ids), -1)
        keys = self._keys(sample_ids, view_ids)
        places = np.minimum(self._sorted.searchsorted(keys), len(self._sorted) - 1)
        return np.where(self._sorted[places] == keys, self._order[places], -1)

    def _keys(self, sample_ids: Keys, view_ids: Keys) -> Keys:
        """One number a key, -1 for a sample or view that no row has."""
        sample, view = _position(self._samples, sample_ids), _position(self._views, view_ids)
        keys: Keys = np.where((sample < 0) | (view < 0), -1, sample * len(self._views) + view)
        return keys


def _position(values: Keys, wanted: Keys) -> Keys:
    places = np.minimum(values.searchsorted(wanted), len(values) - 1)
    return np.where(values[places] == wanted, places, -1)


def as_keys(name: str, values: Any) -> Keys:
    """Ids as a one-dimensional int64 array; anything else is refused by its name."""
    keys = np.asarray(values)
    if keys.ndim != 1 or keys.dtype.kind not in "iu":
        raise ValueError(f"{name}: expected integers of shape (rows,), got {keys.dtype} of shape {keys.shape}")
    return keys.astype(np.int64, copy=False)


def hash_keys(sample_ids: Keys, view_ids: Keys) -> str:
    """The SHA-256 of all keys in order.

    Example:
        >>> hash_keys(np.array([1, 2]), np.array([0, 0])) == hash_keys(np.array([2, 1]), np.array([0, 0]))
        False
    """
    digest = hashlib.sha256(sample_ids.astype("<i8").tobytes())
    digest.update(view_ids.astype("<i8").tobytes())
    return digest.hexdigest()
