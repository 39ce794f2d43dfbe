"""Parquet and Arrow files as tables and Python values, with bounds on what a small file may unpack to."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tpkd.errors import InputError
from tpkd.files import file_size

MAX_TABLE_BYTES = 16 << 30
"""Of the columns that are held in memory."""
UNPACKED, UNPACKED_PER_BYTE = 64 << 20, 200
"""Bytes that a file may unpack to, and how many more for each byte on disk: far above what compression saves on texts,
and far below what a file that was made to fill the memory unpacks to."""
ROWS, ROWS_PER_BYTE = 1_000_000, 100
"""The same for rows: some columns take no space at all."""
_BATCH_ROWS = 64
"""Rows that are unpacked between two looks at the total: a repeated text may be long."""


def unpacked_limit(size: int) -> int:
    """How many bytes a file of this size may unpack to.

    Example:
        >>> unpacked_limit(1000), unpacked_limit(10**9) == MAX_TABLE_BYTES
        (67308864, True)
    """
    return min(MAX_TABLE_BYTES, UNPACKED + UNPACKED_PER_BYTE * size)


def check_rows(where: object, rows: int, size: int) -> None:
    """Refuse more rows than files of this size can hold in earnest.

    Example:
        >>> check_rows("a.parquet", 10**9, 1000)
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: a.parquet: expected at most 1100000 rows in 1000 bytes, found 1000000000
    """
    most = ROWS + ROWS_PER_BYTE * size
    if rows > most:
        raise InputError(f"{where}: expected at most {most} rows in {size} bytes, found {rows}")


def parquet_schema(path: Path) -> Any:
    """The names and types of the columns of a parquet file."""
    from pyarrow import parquet

    return parquet.read_schema(path)


def read_parquet(path: Path, columns: Sequence[str]) -> Any:
    """Some columns of a parquet file as a `pyarrow.Table`.

    Raises:
        InputError: the file unpacks to more than it may.
    """
    from pyarrow import parquet

    size = file_size(path)
    with parquet.ParquetFile(path) as opened:
        check_rows(path, opened.metadata.num_rows, size)
        batches = opened.iter_batches(_BATCH_ROWS, columns=list(columns))
        return _table(path, batches, opened.schema_arrow, columns, size)


def read_arrow(path: Path, columns: Sequence[str]) -> Any:
    """Some columns of an Arrow file, of the format for files or for streams, mapped where it is.

    Raises:
        InputError: the file unpacks to more than it may.
    """
    import pyarrow as pa

    with pa.memory_map(str(path)) as source:
        reader = _open_arrow(source)
        if hasattr(reader, "num_record_batches"):
            batches: Iterable[Any] = map(reader.get_batch, range(reader.num_record_batches))
        else:
            batches = reader
        chosen = (batch.select(list(columns)) for batch in batches)
        return _table(path, chosen, reader.schema, columns, file_size(path))


def arrow_schema(path: Path) -> Any:
    """The names and types of the columns of an Arrow file."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as source:
        return _open_arrow(source).schema


def _open_arrow(source: Any) -> Any:
    import pyarrow as pa

    try:
        return pa.ipc.open_file(source)
    except pa.ArrowInvalid:  # the other of Arrow's two formats, which the library `datasets` writes itself
        source.seek(0)
        return pa.ipc.open_stream(source)


def _table(path: Path, batches: Iterable[Any], schema: Any, columns: Sequence[str], size: int) -> Any:
    import pyarrow as pa

    kept, rows, limit, before = [], 0, unpacked_limit(size), pa.total_allocated_bytes()
    for batch in batches:
        rows += len(batch)
        # What Arrow has allocated, because batches may share their texts, or be parts of the mapped file.
        if pa.total_allocated_bytes() - before > limit:
            raise InputError(f"{path}: expected at most {limit} bytes when unpacked, from {size} on disk, found more")
        check_rows(path, rows, size)
        kept.append(batch)
    # The metadata of the schema says what the library `datasets` knows about the columns.
    chosen = pa.schema([schema.field(schema.names.index(name)) for name in columns])
    table = pa.Table.from_batches(kept, kept[0].schema if kept else chosen)
    for name in columns:
        _check_repeated(path, name, table.column(name), limit)
    return table.replace_schema_metadata(schema.metadata)


def column_values(where: str, name: str, column: Any, expected: str) -> list[Any]:
    """Texts, names or whole numbers of a `pyarrow.ChunkedArray`, None where there is none.

    Raises:
        InputError: the column holds something else.

    Example:
        >>> import pyarrow as pa
        >>> column_values("a.parquet", "label", pa.chunked_array([["x", None]]), "names")
        ['x', None]
        >>> column_values("a.parquet", "label", pa.chunked_array([[0.5]]), "names")
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: a.parquet: label: expected names, found a column of double
    """
    import pyarrow as pa

    if not is_text(column.type) and not pa.types.is_integer(column.type):
        raise InputError(f"{where}: {name}: expected {expected}, found a column of {column.type}")
    values: list[Any] = column.to_pylist()
    return values


def is_text(kind: Any) -> bool:
    """Whether a type of Arrow is a text.

    Example:
        >>> import pyarrow as pa
        >>> is_text(pa.large_string()), is_text(pa.binary())
        (True, False)
    """
    import pyarrow as pa

    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _check_repeated(path: Path, name: str, column: Any, limit: int) -> None:
    """Refuse a dictionary of few texts that are repeated so often that they do not fit; `datasets` unpacks it."""
    import pyarrow as pa
    from pyarrow import compute

    if not pa.types.is_dictionary(column.type) or not is_text(column.type.value_type):
        return
    total = 0
    for chunk in column.chunks:
        lengths = compute.binary_length(chunk.dictionary.cast(pa.large_string()))
        total += compute.sum(lengths.take(chunk.indices)).as_py() or 0
        if total > limit:
            raise InputError(f"{path}: {name}: expected at most {limit} bytes when unpacked, found more")
