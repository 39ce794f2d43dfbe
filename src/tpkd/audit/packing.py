"""Numbers of many examples as text in a script, and scripts as the files that a page loads from a disk.

A browser refuses to fetch a file beside a page that was opened from a disk, but it runs a script: each file calls
`tpkdAudit.take(NAME, DATA)`.
"""

import base64
from pathlib import Path
from typing import Any

import numpy as np

from tpkd.files import write_file
from tpkd.report.scripts import json_text

KINDS = {"float64": "Float64Array", "float32": "Float32Array", "uint32": "Uint32Array", "uint16": "Uint16Array"}
KINDS |= {"uint8": "Uint8Array"}
"""From a type of NumPy to that of JavaScript."""


def packed_column(values: np.ndarray) -> dict[str, Any]:
    """An array as base64 with its JavaScript type, little-endian and flat.

    Example:
        >>> packed_column(np.array([1.0, 2.0], dtype=np.float32))
        {'type': 'Float32Array', 'base64': 'AACAPwAAAEA='}
    """
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return {"type": KINDS[values.dtype.name], "base64": base64.b64encode(little.tobytes()).decode()}


def class_type(num_classes: int) -> type[np.unsignedinteger[Any]]:
    """The smallest type that holds a class number.

    Example:
        >>> class_type(150).__name__, class_type(70_000).__name__
        ('uint16', 'uint32')
    """
    return np.uint16 if num_classes <= 1 << 16 else np.uint32


def script_text(name: str, data: Any) -> str:
    """The script that hands some data to the page.

    Example:
        >>> script_text("inputs/0", ["</script>"])
        'tpkdAudit.take("inputs/0",["\\\\u003c/script\\\\u003e"]);\\n'
    """
    return f"tpkdAudit.take({json_text(name)},{json_text(data)});\n"


def write_script(folder: Path, name: str, data: Any) -> None:
    """Write the data of a name as `folder/NAME.js`."""
    write_file(folder / f"{name}.js", script_text(name, data))


class ChunkWriter:
    """Rows that come in blocks of any size, written as scripts of the same number of rows each."""

    def __init__(self, folder: Path, name: str, rows: int) -> None:
        """Write `folder/name/0.js`, `1.js` and so on, with `rows` rows each but the last."""
        self.folder, self.name, self.rows = folder, name, rows
        (folder / name).mkdir(parents=True, exist_ok=True)
        self._waiting: dict[str, list[Any]] = {}
        self._count, self.written = 0, 0

    def add(self, columns: dict[str, np.ndarray | list[Any]]) -> None:
        """Add some rows, the same columns every time."""
        for name, values in columns.items():
            self._waiting.setdefault(name, []).append(values)
        self._count += len(next(iter(columns.values())))
        if self._count >= self.rows:
            self._flush(self._count // self.rows * self.rows)

    def close(self) -> None:
        """Write the rows that are left."""
        if self._count:
            self._flush(self._count)

    def _flush(self, upto: int) -> None:
        whole = {name: _joined(parts) for name, parts in self._waiting.items()}
        for start in range(0, upto, self.rows):
            end = min(start + self.rows, upto)
            data = {name: _packed(values[start:end]) for name, values in whole.items()}
            # Not published one by one: the folder of all chunks is, when the last one is written.
            text = script_text(f"{self.name}/{self.written}", data)
            (self.folder / self.name / f"{self.written}.js").write_text(text, encoding="ascii")
            self.written += 1
        self._waiting = {name: [values[upto:]] for name, values in whole.items()}
        self._count -= upto


def _joined(parts: list[Any]) -> Any:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return [item for part in parts for item in part]


def _packed(values: Any) -> Any:
    return packed_column(values) if isinstance(values, np.ndarray) else values
