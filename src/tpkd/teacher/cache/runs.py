"""Keys that follow each other: rows that are found by arithmetic, without a table of them."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tpkd.teacher.cache.keys import Keys

MOST_RUNS = 8
"""Of one shard; where its keys fall into more, they are looked up in a sorted file."""

_BLOCK = 1 << 20
"""Keys that are compared at a time."""


class Run(NamedTuple):
    """Rows whose keys follow each other: all views of a sample in order, then those of the sample with the next id."""

    sample: int
    view: int
    rows: int


def find_runs(sample_ids: Keys, view_ids: Keys, num_views: int, most: int = MOST_RUNS) -> tuple[Run, ...] | None:
    """The runs into which keys fall, in their order; None where there are more than `most`.

    Example:
        >>> find_runs(np.array([7, 7, 8, 8, 3]), np.array([0, 1, 0, 1, 0]), 2)
        (Run(sample=7, view=0, rows=4), Run(sample=3, view=0, rows=1))
        >>> find_runs(np.array([7, 5, 3]), np.array([0, 0, 0]), 1, most=2) is None
        True
    """
    if not len(sample_ids):
        return ()
    starts = [0]
    for begin in range(0, len(sample_ids), _BLOCK):
        # One key of the block before belongs to each block, to compare with.
        block = slice(max(0, begin - 1), begin + _BLOCK)
        samples, views = sample_ids[block], view_ids[block]
        if views.min() < 0 or views.max() >= num_views:
            return None
        turn = views[:-1] == num_views - 1
        follows = (samples[1:] == samples[:-1] + turn) & (views[1:] == np.where(turn, 0, views[:-1] + 1))
        starts.extend((np.flatnonzero(~follows)[: most + 1] + block.start + 1).tolist())
        if len(starts) > most:
            return None
    ends = [*starts[1:], len(sample_ids)]
    return tuple(
        Run(int(sample_ids[start]), int(view_ids[start]), end - start) for start, end in zip(starts, ends, strict=True)
    )


class RunIndex:
    """Finds the row of a key in runs that have no sample in common.

    Example:
        >>> index = RunIndex([Run(7, 0, 4), Run(3, 0, 1)], num_views=2)
        >>> index.find(np.array([8, 3, 3, 9]), np.array([1, 0, 1, 0]))
        array([ 3,  4, -1, -1])
    """

    def __init__(self, runs: Sequence[Run], num_views: int, first_row: int = 0) -> None:
        """`runs` in the order of the rows, the first of which is `first_row`.

        Raises:
            ValueError: two runs have views of the same sample.
        """
        self._num_views = num_views
        joined = _join(runs, num_views)
        rows = first_row + np.cumsum([0, *(run.rows for run in joined)])[:-1]
        order = np.argsort([run.sample for run in joined], kind="stable")
        table = np.array(joined, np.int64).reshape(-1, 3)[order]
        self._samples, self._views, self._lengths = table.T.copy()
        self._rows = np.asarray(rows, np.int64)[order]
        self._last = self._samples + (self._views + self._lengths - 1) // num_views
        shared = np.flatnonzero(self._last[:-1] >= self._samples[1:])
        if len(shared):
            raise ValueError(f"runs: expected each sample in one, got sample {self._samples[shared[0] + 1]} in several")

    def __len__(self) -> int:
        """How many runs there are, after joining those that continue each other."""
        return len(self._rows)

    def find(self, sample_ids: Keys, view_ids: Keys) -> Keys:
        """The row of each key, -1 where there is none."""
        if not len(self._rows):
            return np.full(len(sample_ids), -1)
        run = np.maximum(self._samples.searchsorted(sample_ids, side="right") - 1, 0)
        within = (sample_ids >= self._samples[run]) & (sample_ids <= self._last[run])
        within &= (view_ids >= 0) & (view_ids < self._num_views)
        # Foreign keys may be so far away that the product overflows; they are out already.
        place = (sample_ids - self._samples[run]) * self._num_views + view_ids - self._views[run]
        within &= (place >= 0) & (place < self._lengths[run])
        return np.where(within, self._rows[run] + place, -1)


def _join(runs: Sequence[Run], num_views: int) -> list[Run]:
    """The same runs, those in one that continue each other: a shard ends where it is full, not where a run does."""
    joined: list[Run] = []
    for run in runs:
        if joined:
            before = joined[-1]
            turns, view = divmod(before.view + before.rows, num_views)
            if (run.sample, run.view) == (before.sample + turns, view):
                joined[-1] = before._replace(rows=before.rows + run.rows)
                continue
        joined.append(run)
    return joined


def run_index(runs: Iterable[Sequence[Run] | None], num_views: int, first_row: int = 0) -> RunIndex | None:
    """An index of the runs of some shards in order; None where arithmetic is not enough to find their rows.

    Example:
        >>> len(run_index([[Run(0, 0, 3)], [Run(1, 1, 3)]], 2)), run_index([[Run(0, 0, 3)], None], 2)
        (1, None)
    """
    collected: list[Run] = []
    for each in runs:
        if each is None:
            return None
        collected.extend(each)
    try:
        return RunIndex(collected, num_views, first_row)
    except ValueError:
        return None
