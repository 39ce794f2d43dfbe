"""Sums over tokens, by group: nothing of the size of the text is kept."""

from collections.abc import Sequence

import numpy as np

from tpkd.diagnosis.tokens.record import TokenGroup, TokenMeans
from tpkd.theory.tokens import TokenState

QUANTITIES = ("loss", "teacher_loss", "agreement", "blocked_share", "conditional_loss", "transfer_cost")


def quantities(state: TokenState) -> np.ndarray:
    """One row for each of `QUANTITIES`, one column for each token."""
    values = (
        -state.label_log_prob,
        -state.teacher_label_log_prob,
        state.agrees,
        state.blocked,
        state.conditional_loss,
        state.transfer_cost,
    )
    return np.stack([value.reshape(-1).double().numpy() for value in values])


class GroupSums:
    """Means of every quantity over the tokens of some groups.

    Example:
        >>> sums = GroupSums(["rare", "frequent"])
        >>> sums.add(np.array([0, 0, 1]), np.array([[1.0, 3.0, 5.0]] * len(QUANTITIES)))
        >>> [(group.name, group.means.tokens, group.means.loss) for group in sums.groups()]
        [('rare', 2, 2.0), ('frequent', 1, 5.0)]
    """

    def __init__(self, names: Sequence[str]) -> None:
        """No token yet."""
        self._names = names
        self._counts = np.zeros(len(names), np.int64)
        self._sums = np.zeros((len(QUANTITIES), len(names)))

    def add(self, groups: np.ndarray, values: np.ndarray) -> None:
        """Tokens with the number of their group and their quantities."""
        size = len(self._names)
        self._counts += np.bincount(groups, minlength=size)
        self._sums += np.stack([np.bincount(groups, weights=row, minlength=size) for row in values])

    def groups(self) -> tuple[TokenGroup, ...]:
        """All groups in order, empty ones too."""
        return tuple(TokenGroup(name, self._means(place)) for place, name in enumerate(self._names))

    def _means(self, place: int) -> TokenMeans:
        count = int(self._counts[place])
        means = self._sums[:, place] / count if count else [None] * len(QUANTITIES)
        return TokenMeans(count, *(None if value is None else float(value) for value in means))


class Binning:
    """Numbers to groups by the edges between them.

    Example:
        >>> bins = Binning((0.1, 0.5), ("below 10 %", "10 to 50 %", "50 % and above"))
        >>> bins.of(np.array([0.5, 0.05, 0.1]))
        array([2, 0, 1])
    """

    def __init__(self, edges: Sequence[float], names: Sequence[str]) -> None:
        """`names` has one more than `edges`; an edge belongs to the group above it."""
        assert len(names) == len(edges) + 1
        self._edges, self.names = np.asarray(edges), tuple(names)

    def of(self, values: np.ndarray) -> np.ndarray:
        """The number of each value's group."""
        found: np.ndarray = self._edges.searchsorted(values, side="right")
        return found


FREQUENCIES = Binning((2, 10, 100, 1000), ("once", "2 to 9 times", "10 to 99", "100 to 999", "1,000 and more"))
"""How often the right token occurs in the text that was diagnosed."""
CONFIDENCES = Binning((0.01, 0.1, 0.5, 0.9), ("below 1 %", "1 to 10 %", "10 to 50 %", "50 to 90 %", "90 % and above"))
"""The teacher's probability of the right token."""


def positions_of(length: int) -> Binning:
    """Groups of places in a block of some predictions: each twice as wide as the one before.

    Example:
        >>> positions_of(6).names
        ('1', '2 to 3', '4 to 6')
    """
    edges = [1 << power for power in range(length.bit_length())]
    ends = [*(edge - 1 for edge in edges[1:]), length]
    names = [str(first) if first == last else f"{first} to {last}" for first, last in zip(edges, ends, strict=True)]
    return Binning(edges[1:], names)
