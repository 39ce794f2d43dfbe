"""A file of a teacher's answers to training samples, whatever it keeps of them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import torch

from tpkd.importing.samples import Positions
from tpkd.importing.stream import Columns, RowStream

BLOCK_BYTES = 16 << 20
"""What is held of a file at a time."""


class Source(ABC):
    """Answers on disk whose shapes and types fit the data; rows are read on demand."""

    path: Path
    rows: int
    """Samples that the file answers for."""
    num_views: int
    """Answers to each of them."""
    top_k: int | None
    """How many classes an answer keeps; None where it has all logits."""

    @abstractmethod
    def check(self, positions: Positions, dtype: str) -> None:
        """Look at every row that belongs to a sample, before anything is written.

        Args:
            positions: the sample of each row, -1 for a row that is left out.
            dtype: the precision in which the cache keeps logits.

        Raises:
            InputError: names the first row that is not what it must be, or that no cache can hold.
        """

    @abstractmethod
    def parts(self) -> Iterator[Columns]:
        """All answers in order, views after each other, some rows at a time."""

    def stream(self, positions: Positions) -> RowStream:
        """The answers to the samples, without the rows that are left out."""
        kept = torch.from_numpy(positions >= 0).repeat_interleave(self.num_views)

        def parts() -> Iterator[Columns]:
            start = 0
            for columns in self.parts():
                stop = start + len(next(iter(columns.values())))
                chosen = kept[start:stop]
                yield columns if chosen.all() else {name: values[chosen] for name, values in columns.items()}
                start = stop

        return RowStream(parts)


def rows_per_block(row_bytes: int) -> int:
    """How many rows to read at a time.

    Example:
        >>> rows_per_block(8 * 1000), rows_per_block(1 << 30)
        (2097, 1)
    """
    return max(1, BLOCK_BYTES // row_bytes)
