"""The kinds `parquet:PATH`, `arrow:PATH`, `disk:FOLDER` and `hf:ID`: what the library `datasets` reads.

Local files are read or mapped where they are: nothing is copied into a cache. A data set of the hub is fetched into
the library's own cache (`HF_HOME`), where other programs find it too. No code comes from the hub: the library has not
run any since version 4.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np

from tpkd.data.arrow_tables import (
    MAX_TABLE_BYTES,
    arrow_schema,
    check_rows,
    column_values,
    parquet_schema,
    read_arrow,
    read_parquet,
)
from tpkd.data.columns import Chosen, Columns
from tpkd.data.dataset import Dataset, ImageColumn
from tpkd.data.parts import find_files, find_part
from tpkd.data.tables import Labelling, Rows, check_row, check_text, encode_labels, sample_ids
from tpkd.errors import InputError, extra, reason, shortened, some
from tpkd.files import file_size, read_bounded, reading
from tpkd.hub import hub_answers, hub_or_cache

KINDS = ("parquet", "arrow", "disk", "hf")
MAX_STATE_BYTES = 16 << 20
"""Of a JSON file that `save_to_disk` wrote."""

_NO_FINGERPRINT = "unused"
"""The library would read all bytes of a table for a fingerprint that we never ask for."""
_HUB_ID = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*", re.ASCII)


class _Table(NamedTuple):
    """One part as the library has it."""

    where: str
    data: Any
    note: str | None = None


def load_columnar(
    kind: str,
    split: str,
    path: Path,
    *,
    columns: Columns | None = None,
    splits: Mapping[str, str] | None = None,
    labelling: Labelling | None = None,
) -> Dataset:
    """Texts or encoded images with their labels, from a table with named and typed columns.

    Labels are names, whole numbers, or a `ClassLabel`, whose names become the classes in their declared order. Ids and
    checks are those of `load_table`; a class that does not occur in the training part is left out.

    Args:
        kind: "parquet", "arrow" (files), "disk" (a folder written by `save_to_disk`) or "hf" (an id of the hub, or
            ID:CONFIGURATION).
        split: "train", "test" or "validation".
        path: the file or folder; for the hub, the id.
        columns: names of the columns; default: the usual ones.
        splits: names of the files or of the library's splits.
        labelling: which parts have labels.

    Raises:
        InputError: names the file, column or row.

    Example:
        >>> import tempfile, datasets
        >>> folder = Path(tempfile.mkdtemp()) / "questions"
        >>> label = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=["no", "yes"]))
        >>> rows = datasets.Dataset.from_dict({"text": ["ok", "never"], "label": [1, 0]}, features=label)
        >>> datasets.DatasetDict(train=rows).save_to_disk(folder)
        >>> load_columnar("disk", "train", folder).class_names
        ('no', 'yes')
    """
    columns, labelling = columns or Columns(), labelling or Labelling()
    tables = {
        part: _open(kind, part, path, splits, labelling.columns(part, columns)) for part in labelling.parts(split)
    }
    read = {part: _rows(table, labelling.columns(part, columns)) for part, table in tables.items()}
    rows = {part: part_rows for part, (_, _, part_rows) in read.items()}
    chosen, inputs, _ = read[split]
    if read["train"][0].kind != chosen.kind:
        raise InputError(f"{rows[split].where}: expected the column of {rows['train'].where}, found {chosen.input!r}")
    source = labelling.source
    declared = _class_names(tables[source], read[source][0].label) if source in tables else None
    labels, class_names = encode_labels(rows, split, labelling, declared=declared)
    notes = labelling.notes(f"{kind}:{path}", tables[split].note)
    ids = sample_ids(split, rows["train"], rows[split])
    return Dataset(f"{kind}:{path}", split, chosen.kind, inputs, labels, ids, class_names, notes)


def _rows(table: _Table, columns: Columns) -> tuple[Chosen, Any, Rows]:
    where, data = table.where, table.data
    chosen = columns.choose(where, data.column_names, images=True)
    held = chosen.names if chosen.kind == "text" else chosen.names[1:]
    with _library(where):
        # Arrow trusts the offsets in a file unless asked; those of a damaged one would end the process.
        data.select_columns([chosen.input]).with_format("arrow")[:].validate(full=True)
        values = data.select_columns(list(dict.fromkeys(held))).with_format("arrow")[:]
        values.validate(full=True)
        if values.nbytes > MAX_TABLE_BYTES:
            raise InputError(f"{where}: expected at most {MAX_TABLE_BYTES} bytes in {', '.join(held)}, found more")
        expected = dict.fromkeys(held, "names or whole numbers") | {chosen.input: "texts"}
        read = {name: column_values(where, name, values.column(name), expected[name]) for name in held}
    if not len(values):
        raise InputError(f"{where}: expected at least one row, found none")
    labels = [None] * len(values) if chosen.label is None else _named(table, chosen.label, read[chosen.label])
    ids = [None] * len(labels) if chosen.id is None else read[chosen.id]
    rows = [
        check_row(where, line, label, sample_id, with_id=chosen.id is not None, labelled=columns.labelled)
        for line, (label, sample_id) in enumerate(zip(labels, ids, strict=True), 1)
    ]
    if chosen.kind == "text":
        texts = tuple(check_text(where, line, text) for line, text in enumerate(read[chosen.input], 1))
        return chosen, texts, Rows(where, rows)
    return chosen, _images(table, chosen.input), Rows(where, rows)


def _images(table: _Table, column: str) -> ImageColumn:
    import datasets

    cells = table.data.select_columns([column])
    if isinstance(cells.features[column], datasets.Image):
        # Decoded by us: the library would let Pillow run external programs for some formats.
        cells = cells.cast_column(column, datasets.Image(decode=False))
    return ImageColumn(table.where, cells, column, np.arange(len(cells)))


def _class_names(table: _Table, column: str | None) -> list[str] | None:
    import datasets

    feature = None if column is None else table.data.features[column]
    return list(feature.names) if isinstance(feature, datasets.ClassLabel) else None


def _named(table: _Table, column: str, labels: list[Any]) -> list[Any]:
    names = _class_names(table, column)
    if names is None:
        return labels
    for line, label in enumerate(labels, 1):
        if label is None or not 0 <= label < len(names):
            way_out = "choose another with data.splits, or set data.unlabelled: true for objectives that need none"
            hint = f"; this part has no labels: {way_out}" if label == -1 else ""
            problem = f"expected 0 to {len(names) - 1}, one of its {len(names)} class names, found {label}{hint}"
            raise InputError(f"{table.where}: line {line}: {column}: {problem}")
    return [names[label] for label in labels]


def _open(kind: str, split: str, path: Path, splits: Mapping[str, str] | None, columns: Columns) -> _Table:
    with extra("data"):
        import datasets
    if kind in ("parquet", "arrow"):
        files, note = find_files(path, split, (kind,), splits, shards=True)
        where = str(files[0]) if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"
        for file in files:
            file_size(file)  # the library opens paths itself, and would wait for a FIFO
        with _library(where):
            parts = [_read_file(kind, file, columns) for file in files]
            return _Table(where, datasets.concatenate_datasets(parts), note)
    where = f"{kind}:{path}"
    parts = _fetch(path.as_posix()) if kind == "hf" else _from_disk(path)
    if isinstance(parts, datasets.Dataset):
        if split != "train" or splits:
            way_out = f"save a DatasetDict, or set data.{split}: 0.2 to hold out a share of it"
            raise InputError(f"{where}: expected parts such as train and test, found one table; {way_out}")
        return _Table(where, parts.with_format(None))
    part = find_part(where, split, parts.keys(), splits)
    if part.name not in parts:
        found = f"found {some(list(parts))}; name the parts with data.splits"
        raise InputError(f"{where}: expected the part {part.name!r}, {found}")
    return _Table(f"{where}, {part.name}", parts[part.name].with_format(None), part.note)


def _read_file(kind: str, file: Path, columns: Columns) -> Any:
    import datasets

    schema, read = (parquet_schema, read_parquet) if kind == "parquet" else (arrow_schema, read_arrow)
    chosen = columns.choose(str(file), schema(file).names, images=True)
    return datasets.Dataset(read(file, tuple(dict.fromkeys(chosen.names))), fingerprint=_NO_FINGERPRINT)


def _from_disk(folder: Path) -> Any:
    import datasets

    if not folder.is_dir():
        raise InputError(f"{folder}: expected a folder written by save_to_disk, found none")
    size = 0
    for path in folder.rglob("*"):
        if not path.is_dir():
            size += file_size(path)
            _check_state(path)
    try:
        with _library(str(folder)):
            for path in folder.rglob("*.arrow"):
                _check_plain(path)
            found = datasets.load_from_disk(str(folder), keep_in_memory=False)
            for part in found.values() if isinstance(found, datasets.DatasetDict) else (found,):
                check_rows(folder, len(part), size)
            return found
    except InputError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise InputError(f"{folder}: expected a folder written by save_to_disk, found other files") from error
        raise


def _check_state(path: Path) -> None:
    """Refuse names of files and parts that lead out of the folder, which the library would follow."""
    if path.name not in ("state.json", "dataset_dict.json"):
        return
    with reading(path):
        state = json.loads(read_bounded(path, MAX_STATE_BYTES))
    if not isinstance(state, dict):
        raise InputError(f"{path}: damaged or not what its name says: expected a JSON object")
    parts, files = (state.get(key) or [] for key in ("splits", "_data_files"))
    if not isinstance(parts, list) or not isinstance(files, list):
        raise InputError(f"{path}: damaged or not what its name says: expected lists of files and parts")
    for name in (*parts, *(file.get("filename") for file in files if isinstance(file, dict))):
        if not isinstance(name, str) or PurePath(name).name != name or name in ("", ".", ".."):
            found = shortened(repr(name), 60)
            raise InputError(f"{path}: expected names of files and parts in this folder, found {found}")


def _check_plain(path: Path) -> None:
    """Refuse columns that unpack to more than they hold; `save_to_disk` writes none, and the library unpacks them."""
    import pyarrow as pa

    for column in arrow_schema(path):
        if pa.types.is_dictionary(column.type) or pa.types.is_run_end_encoded(column.type):
            raise InputError(f"{path}: {column.name}: expected what save_to_disk writes, found {column.type}")


def _fetch(name: str) -> Any:
    import datasets

    hub_id, _, configuration = name.partition(":")
    if not _HUB_ID.fullmatch(hub_id) or "/" in configuration:
        raise InputError(f"hf:{name}: expected an id of the hub such as owner/name, found {shortened(name)!r}")
    if Path(hub_id).exists():
        # The library would take it instead of the hub's.
        raise InputError(
            f"hf:{name}: expected an id of the hub, found a path of that name here; did you mean disk:{name}?"
        )
    try:
        with hub_or_cache():
            return datasets.load_dataset(hub_id, configuration or None)
    except Exception as error:  # of requests, the hub's client, the library and its readers
        way_out = "where there is a network, save it with save_to_disk, then use disk:FOLDER"
        problem = shortened(reason(error)) if hub_answers() else "the hub does not answer, and no copy is in its cache"
        raise InputError(f"hf:{name}: cannot be fetched: {problem}; {way_out}") from error


@contextmanager
def _library(where: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except MemoryError:
        raise
    except Exception as error:  # Arrow and the library raise almost any exception on damaged files
        problem = f"damaged or not what its name says: {shortened(reason(error))}"
        raise InputError(f"{where}: {problem}") from error
