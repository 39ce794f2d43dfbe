"""From the tokens of documents to blocks of equal length: a rule that depends on nothing else."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from tpkd.errors import InputError

RULE = "documents in a row, a separator after each, cut into blocks"


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks of text with their keys."""

    tokens: Int64[np.ndarray, "blocks length"]
    documents: Int64[np.ndarray, " blocks"]
    """The document in which each block begins."""
    numbers: Int64[np.ndarray, " blocks"]
    """The number of each block among those that begin in its document."""

    def __len__(self) -> int:
        """How many blocks there are."""
        return len(self.tokens)

    def first(self, count: int) -> "Blocks":
        """The first blocks."""
        return Blocks(self.tokens[:count], self.documents[:count], self.numbers[:count])


def pack(documents: Iterable[Iterable[int]], length: int, separator: int) -> Blocks:
    """Documents in a row, a separator after each, cut into blocks; the last tokens that fill no block are left out.

    A block may hold the end of one document and the beginning of the next. Its key is the document of its first token
    (a separator belongs to the document before it) and its number among the blocks that begin there.

    Args:
        documents: the tokens of each document.
        length: tokens of a block.
        separator: the token after each document.

    Raises:
        InputError: there are fewer tokens than one block has.

    Example:
        >>> found = pack([[1, 2, 3, 4, 5, 6, 7], [8], [9, 10]], length=3, separator=0)
        >>> found.tokens.tolist()
        [[1, 2, 3], [4, 5, 6], [7, 0, 8], [0, 9, 10]]
        >>> list(zip(found.documents.tolist(), found.numbers.tolist()))
        [(0, 0), (0, 1), (0, 2), (1, 0)]
    """
    rows = [np.fromiter((*tokens, separator), np.int64) for tokens in documents]
    stream = np.concatenate(rows) if rows else np.zeros(0, np.int64)
    count = len(stream) // length
    if not count:
        raise InputError(f"packing.length: expected at most the {len(stream)} tokens of the text, found {length}")
    starts = np.cumsum([0, *map(len, rows)])
    begins = np.arange(count) * length
    owners = starts.searchsorted(begins, side="right") - 1
    # The first block of a document is the first that begins at or after its first token.
    first = -(-starts[owners] // length)
    return Blocks(stream[: count * length].reshape(count, length), owners, np.arange(count) - first)
