"""The columns of a row: what a shard holds of it, in which precision, and how wide."""

import math
from dataclasses import dataclass, fields

import numpy as np

from tpkd.geometry.top_k import TopK

TOP_K_COLUMNS = tuple(field.name for field in fields(TopK))
"""The columns that a truncated teacher has in the place of its logits."""
TOKENS = "tokens"
"""The column with the text itself, where a row is a block of it."""


@dataclass(frozen=True)
class Column:
    """One named tensor of a shard: `(rows, width)`, or `(rows,)` without a width; of tokens with positions between.

    Example:
        >>> Column("float16", 5).shape(3), Column("float16", 5).row_bytes, Column("float32").shape(3)
        ((3, 5), 10, (3,))
        >>> Column("float16", 5, positions=7).shape(3), Column("float32", positions=7).shape(3)
        ((3, 7, 5), (3, 7))
    """

    dtype: str
    width: int | None = None
    positions: int | None = None

    def shape(self, rows: int) -> tuple[int, ...]:
        """The shape of the tensor in a shard of some rows."""
        return (rows, *(size for size in (self.positions, self.width) if size is not None))

    @property
    def row_bytes(self) -> int:
        """Bytes per row."""
        return np.dtype(self.dtype).itemsize * math.prod(self.shape(1))


def logits_columns(num_classes: int, dtype: str, positions: int | None = None) -> dict[str, Column]:
    """The columns of a row that keeps all logits.

    Example:
        >>> logits_columns(100, "float16")
        {'logits': Column(dtype='float16', width=100, positions=None)}
    """
    return {"logits": Column(dtype, num_classes, positions)}


def token_columns(num_classes: int, positions: int) -> dict[str, Column]:
    """The column of a row that is a block of text: its tokens, one more than it has predictions.

    Example:
        >>> token_columns(50_000, 255)
        {'tokens': Column(dtype='uint16', width=256, positions=None)}
    """
    return {TOKENS: Column(index_dtype(num_classes), positions + 1)}


def top_k_columns(
    num_classes: int, dtype: str, top_k: int, positions: int | None = None, *, may_be_empty: bool = False
) -> dict[str, Column]:
    """The columns of a row that keeps the largest classes, named as the fields of `TopK`.

    An empty place, which only a row that keeps a share of the probability has, is stored as a class beyond the last.

    Example:
        >>> {name: (column.dtype, column.width) for name, column in top_k_columns(1000, "float16", 8).items()}
        ... # doctest: +NORMALIZE_WHITESPACE
        {'log_probs': ('float16', 8), 'indices': ('uint16', 8),
         'label_log_probs': ('float16', None), 'rest_log_probs': ('float32', None)}
    """
    return {
        "log_probs": Column(dtype, top_k, positions),
        "indices": Column(index_dtype(num_classes + may_be_empty), top_k, positions),
        "label_log_probs": Column(dtype, positions=positions),
        # One number per row: rounded to half precision it would lose what it is kept for.
        "rest_log_probs": Column("float32", positions=positions),
    }


def index_dtype(num_classes: int) -> str:
    """The smallest integer type that holds every class.

    Example:
        >>> index_dtype(256), index_dtype(257), index_dtype(50_000), index_dtype(65_537)
        ('uint8', 'uint16', 'uint16', 'int32')
    """
    candidates = ("uint8", "uint16", "int32", "int64")
    return next(name for name in candidates if num_classes - 1 <= np.iinfo(name).max)
