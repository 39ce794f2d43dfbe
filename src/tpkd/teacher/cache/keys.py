"""The keys of rows: a sample id and a view id, both integers."""

from typing import Any

import numpy as np
from jaxtyping import Int64

Keys = Int64[np.ndarray, "_"]

SPARSEST = 64
"""An index may have this many places for each row; more means that the view ids are not view numbers."""


def as_keys(name: str, values: Any) -> Keys:
    """Ids as a one-dimensional int64 array; anything else is refused by its name.

    Example:
        >>> as_keys("sample_ids", [3, 1])
        array([3, 1])
    """
    keys = np.asarray(values)
    if keys.ndim != 1 or keys.dtype.kind not in "iu":
        raise ValueError(f"{name}: expected integers of shape (rows,), got {keys.dtype} of shape {keys.shape}")
    return keys.astype(np.int64, copy=False)


def twice(sample: int, view: int) -> ValueError:
    """What is said of a key that two rows have.

    Example:
        >>> str(twice(7, 0))
        'sample_ids: expected every (sample id, view id) once, got sample 7, view 0 more than once'
    """
    return ValueError(
        f"sample_ids: expected every (sample id, view id) once, got sample {sample}, view {view} more than once"
    )


def check_width(samples: int, rows: int, lowest_view: int, highest_view: int) -> int:
    """How many places an index has for each sample: one for each view number up to the highest.

    Raises:
        ValueError: the view ids are so large or negative that they cannot be view numbers.

    Example:
        >>> check_width(100, 300, 0, 2)
        3
    """
    width = 1 + highest_view
    if lowest_view < 0 or samples * width > SPARSEST * rows:
        raise ValueError(f"view_ids: expected small numbers from 0, got {lowest_view} to {highest_view}")
    return width
