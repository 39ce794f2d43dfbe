"""Predictions in files, by suffix: csv, npz or parquet, written batch by batch and published whole or not at all."""

import csv
import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from tpkd.errors import InputError, did_you_mean, extra
from tpkd.files import publish, writing
from tpkd.student.prediction import PredictedBatch

AddBatch: TypeAlias = Callable[[PredictedBatch], None]


def check_output(path: Path) -> None:
    """Refuse, before any work, a file that exists already, an unknown suffix, or a missing directory or library.

    Raises:
        InputError: says what to do instead.
    """
    if path.suffix not in WRITERS:
        hint = did_you_mean(path.suffix, WRITERS)
        raise InputError(f"{path}: expected a file that ends in {', '.join(WRITERS)}, found {path.suffix!r}{hint}")
    if path.exists() or path.is_symlink():
        raise InputError(f"{path}: expected a new file, found one that exists; remove it or choose another name")
    if not path.parent.is_dir():
        raise InputError(f"{path}: expected a file in an existing directory, found no directory {path.parent}")
    if path.suffix == ".parquet":
        with extra("data"):
            import pyarrow.parquet  # noqa: F401


@contextmanager
def open_output(path: Path, class_names: Sequence[str], *, labelled: bool) -> Iterator[AddBatch]:
    """A file that takes batches, published once all are in it.

    Args:
        path: where; its suffix is the format.
        class_names: of the student, in the order of the probabilities.
        labelled: whether batches have labels.

    Yields:
        What adds one batch.
    """
    check_output(path)
    with writing(path), publish(path) as file, WRITERS[path.suffix](file, class_names, labelled) as add:
        yield add


@contextmanager
def _csv_writer(file: IO[bytes], class_names: Sequence[str], labelled: bool) -> Iterator[AddBatch]:
    def write(rows: Any) -> None:
        text = io.StringIO(newline="")
        csv.writer(text).writerows(rows)
        file.write(text.getvalue().encode())

    def add(batch: PredictedBatch) -> None:
        found = batch.found
        columns: list[Sequence[Any]] = [batch.sample_ids.tolist(), found.labels]
        if batch.labels is not None and batch.correct is not None:
            columns.append([class_names[label] for label in batch.labels.tolist()])
            columns.append(["yes" if right else "no" for right in batch.correct.tolist()])
        columns.append([_shortest(value) for value in found.margins.numpy()])
        numbers = [[_shortest(value) for value in row] for row in found.probabilities.numpy()]
        write([*row, *values] for row, values in zip(zip(*columns, strict=True), numbers, strict=True))

    known = ["label", "correct"] if labelled else []
    write([["sample_id", "prediction", *known, "margin", *(f"probability {name}" for name in class_names)]])
    yield add


def _shortest(value: np.float32) -> str:
    """The shortest decimals that read back as the same float32."""
    return np.format_float_scientific(value) if 0 < abs(value) < 1e-4 else np.format_float_positional(value, trim="0")


@contextmanager
def _npz_writer(file: IO[bytes], class_names: Sequence[str], labelled: bool) -> Iterator[AddBatch]:
    """Arrays grow in files beside each other, because the header of an array holds its final length."""
    with ExitStack() as stack:
        parts: dict[str, tuple[IO[bytes], np.dtype[Any], tuple[int, ...]]] = {}
        rows, beside = 0, Path(file.name).parent

        def append(name: str, array: np.ndarray) -> None:
            if name not in parts:
                parts[name] = (stack.enter_context(tempfile.TemporaryFile(dir=beside)), array.dtype, array.shape[1:])
            parts[name][0].write(np.ascontiguousarray(array).data)

        def add(batch: PredictedBatch) -> None:
            nonlocal rows
            rows += len(batch.found)
            append("sample_ids", batch.sample_ids.numpy())
            append("predictions", batch.found.indices.numpy())
            append("probabilities", batch.found.probabilities.numpy())
            append("margins", batch.found.margins.numpy())
            if batch.labels is not None and batch.correct is not None:
                append("labels", batch.labels.numpy())
                append("correct", batch.correct.numpy())

        yield add
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            with archive.open("class_names.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.array(class_names, dtype=np.str_), allow_pickle=False)
            for name, (part, dtype, shape) in parts.items():
                header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (rows, *shape)}
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array_header_1_0(member, header)
                    part.seek(0)
                    shutil.copyfileobj(part, member)


@contextmanager
def _parquet_writer(file: IO[bytes], class_names: Sequence[str], labelled: bool) -> Iterator[AddBatch]:
    with extra("data"):
        import pyarrow as pa
        import pyarrow.parquet

    names, width = pa.array(list(class_names), pa.string()), len(class_names)
    fields = [("sample_id", pa.int64()), ("prediction", pa.string())]
    fields += [("label", pa.string()), ("correct", pa.bool_())] if labelled else []
    fields += [("margin", pa.float32()), ("probabilities", pa.list_(pa.float32(), width))]
    schema = pa.schema(fields, metadata={"class_names": json.dumps(list(class_names), ensure_ascii=False)})
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:

        def add(batch: PredictedBatch) -> None:
            found = batch.found
            columns = [pa.array(batch.sample_ids.numpy()), names.take(pa.array(found.indices.numpy()))]
            if batch.labels is not None and batch.correct is not None:
                columns += [names.take(pa.array(batch.labels.numpy())), pa.array(batch.correct.numpy())]
            flat = pa.array(found.probabilities.numpy().reshape(-1))
            columns += [pa.array(found.margins.numpy()), pa.FixedSizeListArray.from_arrays(flat, width)]
            writer.write_table(pa.table(columns, schema=schema))

        yield add


WRITERS = {".csv": _csv_writer, ".npz": _npz_writer, ".parquet": _parquet_writer}
"""What writes a file of each suffix."""
