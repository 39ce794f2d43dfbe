"""Sample order and view choice as pure functions of seeds and counters, so a run resumes without replay."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Integers: TypeAlias = int | Sequence[int] | NDArray[Any]

# Each use of the hash has its own first word, so that the order of samples and the choice of views are independent.
ORDER, VIEW_CHOICE, CROP_ROW, CROP_COLUMN, FLIP = range(1, 6)
MIX_PARTNER, MIX_KIND, MIX_WEIGHT, BOX_ROW, BOX_COLUMN = range(6, 11)
PER_CLASS, HELD_OUT = range(11, 13)

_GOLDEN_GAMMA = 0x9E3779B97F4A7C15


def hash_words(*words: Integers) -> NDArray[np.uint64]:
    """A 64-bit hash of a sequence of integers, the same on every machine and in every release.

    h <- mix(h xor word) from h = 0, where mix(x) is the SplitMix64 output for the state x: adding 0x9E3779B97F4A7C15,
    then two rounds of xor-shift and multiplication and a last xor-shift, all modulo 2^64.

    Shapes: words are integers or integer arrays that broadcast against each other; negative words wrap modulo 2^64.

    Example:
        >>> [hex(value) for value in hash_words(1, [2, 3]).tolist()]
        ['0xbcd9dbb49673066b', '0x86d6fd953217ae03']
    """
    state = np.zeros(1, np.uint64)  # one axis, because scalars warn where arrays wrap around
    for word in words:
        x = (state ^ _as_words(word)) + np.uint64(_GOLDEN_GAMMA)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = x ^ (x >> np.uint64(31))
    return state


def _as_words(word: Integers) -> NDArray[np.uint64]:
    if isinstance(word, int):
        word = word % 2**64
    return np.atleast_1d(np.asarray(word)).astype(np.uint64)


def uniform_integers(upper: int, *words: Integers) -> NDArray[np.int64]:
    """Integers from 0 to upper - 1, chosen by the hash of the words; `upper` is at most 2^31.

    Example:
        >>> uniform_integers(8, 1, [2, 3, 4, 5]).tolist()
        [5, 4, 6, 5]
    """
    if not 1 <= upper <= 2**31:
        raise ValueError(f"upper: expected 1 to 2^31, got {upper}")
    high = hash_words(*words) >> np.uint64(32)
    return ((high * np.uint64(upper)) >> np.uint64(32)).astype(np.int64)


def uniform_reals(*words: Integers) -> NDArray[np.float64]:
    """Numbers strictly between 0 and 1, in steps of 2^-52, chosen by the hash of the words.

    Example:
        >>> uniform_reals(1, [2, 3, 4]).round(4).tolist()
        [0.7377, 0.5267, 0.8709]
    """
    return ((hash_words(*words) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


class SampleOrder:
    """The endless sequence of samples of a run: a new permutation every epoch, with random access.

    The global cursor g counts samples from the start of the run. It lies in epoch g // length + 1, and the permutation
    of an epoch sorts the positions by the hash of (seed, epoch, position). A batch may cross the end of an epoch, as
    the 1,125 text iterations of the paper do; a resumed run continues at its cursor and replays nothing.

    Example:
        >>> order = SampleOrder(seed=42, length=5)
        >>> positions, epochs = order.positions(3, 8)
        >>> positions.tolist(), epochs.tolist()
        ([0, 3, 1, 0, 4], [1, 1, 2, 2, 2])
    """

    def __init__(self, seed: int, length: int) -> None:
        """An order of `length` samples, drawn by `seed`."""
        if length < 1:
            raise ValueError(f"length: expected at least 1 sample, got {length}")
        self.seed = seed
        self.length = length

    def positions(self, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The positions of samples at the cursors start <= g < stop, and the epoch of each, counted from 1."""
        if not 0 <= start <= stop:
            raise ValueError(f"start, stop: expected 0 <= start <= stop, got {start} and {stop}")
        pieces = list(self._pieces(start, stop))
        positions = np.concatenate([np.empty(0, np.int64), *(piece for _, piece in pieces)])
        epochs = np.concatenate([np.empty(0, np.int64), *(np.full(len(piece), epoch) for epoch, piece in pieces)])
        return positions, epochs

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        while start < stop:
            passed, offset = divmod(start, self.length)
            end = min(stop - passed * self.length, self.length)
            yield passed + 1, _permutation(self.seed, passed + 1, self.length)[offset:end]
            start += end - offset


@lru_cache(maxsize=4)
def _permutation(seed: int, epoch: int, length: int) -> NDArray[np.int64]:
    # A stable sort, so that the order is defined even for equal hashes.
    permutation = np.argsort(hash_words(ORDER, seed, epoch, np.arange(length)), kind="stable")
    permutation.flags.writeable = False
    return permutation


def choose_views(seed: int, epochs: Integers, ids: Integers, num_views: int) -> NDArray[np.int64]:
    """Which of its fixed views each sample shows in an epoch: the hash of (seed, epoch, sample id).

    The views themselves belong to the recipe and its own seed; a run's seed only chooses among them, so that one
    teacher cache serves every seed. How views follow each other is not stated in the paper.

    Shapes: epochs and ids broadcast against each other; returns view ids from 0 to num_views - 1.

    Example:
        >>> choose_views(42, 1, [0, 1, 2, 3], num_views=8).tolist()
        [5, 4, 5, 5]
    """
    return uniform_integers(num_views, VIEW_CHOICE, seed, epochs, ids)
