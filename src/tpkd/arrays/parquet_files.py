"""Arrays of `.parquet` files: a column per class, or one column with a list of numbers per row."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from tpkd.arrays.array_file import ArrayFile, TextFile, regrouped
from tpkd.arrays.columns import choose_columns
from tpkd.class_names import from_metadata
from tpkd.errors import InputError, extra, reason, shortened
from tpkd.files import file_size

BUFFER_BYTES = 1 << 16
"""Of each column while it is read; without a buffer, the columns of a whole row group would be in memory."""
MAX_LIST_LENGTH = 1 << 24
"""Numbers per row."""

Converted = TypeVar("Converted")


class _Columns(NamedTuple):
    """The columns of one array."""

    names: tuple[str, ...]
    types: tuple[Any, ...]
    class_names: tuple[str, ...] | None
    single: bool

    @property
    def is_list(self) -> bool:
        """Whether the array is one column of lists."""
        return self.single and _list_item(self.types[0]) is not None


def parquet_names(path: Path) -> tuple[str, ...]:
    """The names of the columns, sorted."""
    with _open(path) as file:
        return tuple(sorted(file.schema_arrow.names))


def open_parquet(path: Path, key: str) -> ArrayFile:
    """The columns of an array as numbers: `(N, K)`, or one column `(N,)`; whole numbers become int64."""
    with _open(path) as file:
        columns, rows = _choose(path, file, key), file.metadata.num_rows
        dtypes = [_dtype(path, name, kind) for name, kind in zip(columns.names, columns.types, strict=True)]
        dtype = _joint_dtype(dtypes)
        shape: tuple[int, ...] = (rows,) if columns.single else (rows, len(columns.names))
        if columns.is_list:
            shape = (rows, _list_length(path, file, columns))

    def read(size: int) -> Iterator[Tensor]:
        def convert(start: int, batch: Any) -> Tensor:
            if columns.is_list:
                return _lists(path, columns.names[0], batch, start, shape[1], dtype)
            values = _values(path, columns, batch, start, dtype)
            return values[:, 0] if columns.single else values

        yield from regrouped(_converted(path, columns, size, convert), size)

    return ArrayFile(path, shape, dtype, read, columns.class_names)


def open_parquet_texts(path: Path, key: str) -> TextFile | None:
    """The texts of one column; None where the array `key` is numbers or has several columns."""
    with _open(path) as file:
        columns, rows = _choose(path, file, key), file.metadata.num_rows
    if not columns.single or not _is_text(columns.types[0]):
        return None

    def read(size: int) -> Iterator[list[str]]:
        def convert(start: int, batch: Any) -> list[str]:
            texts: list[str] = _whole(path, columns.names[0], batch, start).to_pylist()
            return texts

        held: list[str] = []
        for texts in _converted(path, columns, size, convert):
            held += texts
            while len(held) >= size:
                yield held[:size]
                held = held[size:]
        if held:
            yield held

    return TextFile(path, rows, read)


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    with extra("data"):
        from pyarrow import parquet

    file_size(path)  # the library opens the path itself, and would wait for a FIFO
    with (
        _library(path),
        parquet.ParquetFile(
            str(path), buffer_size=BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True
        ) as file,
    ):
        yield file


@contextmanager
def _library(path: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except InputError:
        raise
    except pa.ArrowMemoryError as error:
        raise InputError(f"{path}: damaged, or needs more memory than there is") from error
    except MemoryError:
        raise
    except Exception as error:  # Arrow raises almost any exception on damaged files
        raise InputError(f"{path}: damaged or not what its suffix says: {shortened(reason(error))}") from error


def _choose(path: Path, file: Any, key: str) -> _Columns:
    schema = file.schema_arrow
    metadata = {name.decode(errors="replace"): text.decode(errors="replace") for name, text in _metadata(schema)}
    try:
        recorded = from_metadata(metadata)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    lists = [name for name, kind in zip(schema.names, schema.types, strict=True) if _list_item(kind) is not None]
    if not schema.names:
        raise InputError(f"{path}: expected columns of numbers, found none")
    chosen = choose_columns(str(path), schema.names, key)
    names = tuple(schema.names[place] for place in chosen.places)
    if not chosen.single and len(lists) == 1:
        names, chosen = (lists[0],), chosen._replace(single=True, class_names=None)
    types = tuple(schema.field(name).type for name in names)
    columns = _Columns(names, types, chosen.class_names, chosen.single)
    return columns._replace(class_names=recorded) if columns.is_list else columns


def _metadata(schema: Any) -> list[tuple[bytes, bytes]]:
    return list((schema.metadata or {}).items())


def _converted(
    path: Path, columns: _Columns, size: int, convert: Callable[[int, Any], Converted]
) -> Iterator[Converted]:
    """What is made of the first row and the rows of every batch."""
    start = 0
    with _open(path) as file:
        for batch in file.iter_batches(size, columns=list(columns.names), use_threads=False):
            batch.validate(full=True)  # Arrow trusts what is in a file unless it is asked to look
            yield convert(start, batch)
            start += len(batch)
        if start != file.metadata.num_rows:
            raise InputError(f"{path}: damaged: expected {file.metadata.num_rows} rows, found {start}")


def _whole(path: Path, name: str, batch: Any, start: int) -> Any:
    """One column of a batch, plain and without gaps."""
    import pyarrow as pa

    column = batch.column(batch.schema.get_field_index(name))
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    _refuse_nulls(path, name, column, start)
    return column


def _refuse_nulls(path: Path, name: str, column: Any, start: int) -> None:
    if column.null_count:
        row = start + column.is_null().to_pylist().index(True)
        raise InputError(f"{path}: row {row}: column {shortened(name, 60)!r}: expected a value, found none")


def _values(path: Path, columns: _Columns, batch: Any, start: int, dtype: torch.dtype) -> Tensor:
    values = torch.empty(len(batch), len(columns.names), dtype=dtype)
    for place, name in enumerate(columns.names):
        values[:, place] = _tensor(_whole(path, name, batch, start))
    return values


def _lists(path: Path, name: str, batch: Any, start: int, length: int, dtype: torch.dtype) -> Tensor:
    import pyarrow.compute as pc

    column = _whole(path, name, batch, start)
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    wrong = (lengths != length).nonzero()[0]
    if len(wrong):
        found = f"expected {length} numbers as in row 0, found {lengths[wrong[0]]}"
        raise InputError(f"{path}: row {start + int(wrong[0])}: column {shortened(name, 60)!r}: {found}")
    flat = column.flatten()
    if flat.null_count:
        row = start + flat.is_null().to_pylist().index(True) // length
        raise InputError(f"{path}: row {row}: column {shortened(name, 60)!r}: expected numbers, found a gap")
    return _tensor(flat).to(dtype).reshape(len(batch), length)


def _tensor(column: Any) -> Tensor:
    import pyarrow as pa

    if pa.types.is_integer(column.type):
        column = column.cast(pa.int64())
    return torch.tensor(column.to_numpy(zero_copy_only=False))


def _list_length(path: Path, file: Any, columns: _Columns) -> int:
    """The length of the lists: declared, or that of the first."""
    import pyarrow as pa

    kind, name = columns.types[0], shortened(columns.names[0], 60)
    if pa.types.is_fixed_size_list(kind):
        length = kind.list_size
    else:
        first = next(file.iter_batches(1, columns=list(columns.names), use_threads=False), None)
        if first is None or not len(first):
            raise InputError(f"{path}: expected at least one row, found none")
        first.validate(full=True)
        value = first.column(first.schema.get_field_index(columns.names[0]))[0]
        length = len(value) if value.is_valid else 0
    if not 1 <= length <= MAX_LIST_LENGTH:
        raise InputError(f"{path}: column {name!r}: expected 1 to {MAX_LIST_LENGTH} numbers per row, found {length}")
    return int(length)


def _list_item(kind: Any) -> Any:
    """The type of the entries of a list; None for any other type."""
    import pyarrow as pa

    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return kind.value_type if is_list else None


def _plain(kind: Any) -> Any:
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    checks: list[Callable[[Any], bool]] = [pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view]
    return any(check(_plain(kind)) for check in checks)


def _dtype(path: Path, name: str, kind: Any) -> torch.dtype:
    import pyarrow as pa

    item = _list_item(kind)
    plain = _plain(kind) if item is None else item
    floats = {pa.float16(): torch.float16, pa.float32(): torch.float32, pa.float64(): torch.float64}
    if plain in floats:
        return floats[plain]
    if pa.types.is_integer(plain):
        return torch.int64
    if pa.types.is_boolean(plain):
        return torch.bool
    raise InputError(f"{path}: column {shortened(name, 60)!r}: expected numbers, found {shortened(str(kind), 60)}")


def _joint_dtype(dtypes: list[torch.dtype]) -> torch.dtype:
    """The dtype of columns side by side: their own if it is the same, else one that holds all of them."""
    if len(set(dtypes)) == 1:
        return dtypes[0]
    return torch.float64 if any(dtype.is_floating_point for dtype in dtypes) else torch.int64
