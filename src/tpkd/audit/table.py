"""The examples as a flat table that Spotlight, FiftyOne and pandas read: one row each, CSV or Parquet."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tpkd.audit.samples import Samples, readable
from tpkd.errors import InputError, extra
from tpkd.files import write_file, writing

IMAGES_NAME = "images"
"""Folder beside the table for images that are not files yet."""
SUFFIXES = (".csv", ".parquet")
STUDENT_COLUMNS = (
    *("answer", "right", "blocked", "confidence", "margin", "transfer_cost", "conditional_loss", "imitation_loss"),
    *("label_loss", "min_confidence", "compensation", "retention", "update_cosine"),
)
"""Columns of a student, which bear its name in front where there are several."""


def check_table(path: Path) -> None:
    """Refuse, before any work, a table that could not be written.

    Example:
        >>> check_table(Path("table.csv"))
    """
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: expected a table that ends in {' or '.join(SUFFIXES)}, found {path.suffix!r}")
    if path.suffix == ".parquet":
        with extra("data"):
            import pyarrow.parquet  # noqa: F401


def table_columns(
    samples: Samples,
    rows: np.ndarray,
    class_names: Sequence[str],
    shared: Mapping[str, np.ndarray],
    students: Mapping[str, Mapping[str, np.ndarray]],
) -> dict[str, list[Any]]:
    """Names and values of all columns, in plain Python.

    Args:
        samples: names, texts and image files.
        rows: of the examples in the files of logits.
        class_names: of the classes.
        shared: `label`, `teacher_answer`, `teacher_confidence`, `teacher_margin` of the examples.
        students: from the name of each to its `STUDENT_COLUMNS`.
    """
    columns: dict[str, list[Any]] = {"row": rows.tolist(), "example": [samples.name(int(row)) for row in rows]}
    if samples.kind == "text" and samples.dataset is not None:
        columns["text"] = [readable(str(text)) for text in samples.dataset.take(rows)]
    named = {"label": shared["label"], "teacher_answer": shared["teacher_answer"]}
    for name, classes in named.items():
        columns[name] = [class_names[index] for index in classes.tolist()]
    columns["teacher_right"] = (shared["label"] == shared["teacher_answer"]).tolist()
    columns |= {name: shared[name].tolist() for name in ("teacher_confidence", "teacher_margin")}
    for prefix, values in zip(_prefixes(list(students)), students.values(), strict=True):
        for name in STUDENT_COLUMNS:
            found = values[name].tolist()
            columns[f"{prefix}{name}"] = [class_names[index] for index in found] if name == "answer" else found
    return columns


def _prefixes(students: list[str]) -> list[str]:
    """What column names begin with: signs that every tool takes; nothing for one student."""
    if len(students) == 1:
        return [""]
    plain = [re.sub(r"\W+", "_", name) for name in students]
    return [f"{name}_" if plain.count(name) == 1 else f"{name}_{number}_" for number, name in enumerate(plain)]


def write_table(path: Path, columns: dict[str, list[Any]], samples: Samples, rows: np.ndarray) -> None:
    """Publish the table; images that are no files yet become files beside it, because other tools show files.

    The column `filepath` holds the place of each image, as FiftyOne calls it.
    """
    if samples.kind == "image":
        columns = {"filepath": _image_files(path, samples, rows), **columns}
    if path.suffix == ".csv":
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        write_file(path, text.getvalue())
        return
    with extra("data"):
        import pyarrow
        import pyarrow.parquet
    content = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), content)
    write_file(path, content.getvalue())


def _image_files(table: Path, samples: Samples, rows: np.ndarray) -> list[str]:
    found, folder, white = [], table.with_suffix("").with_name(f"{table.stem}-{IMAGES_NAME}"), samples.brightest
    for row in rows.tolist():
        path = samples.path(row)
        if path is None:
            path = folder / f"{row}.png"
            _save_image(path, samples.pixels(row), white)
        found.append(str(path.resolve()))
    return found


def _save_image(path: Path, pixels: np.ndarray | None, white: int) -> None:
    with extra("train"):
        from PIL import Image
    if pixels is None:
        return
    if white != 255:
        pixels = (pixels.astype(np.float64) * (255 / white)).round().clip(0, 255).astype(np.uint8)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(path)
