"""Open an array or a column of texts by the suffix of its file."""

from collections.abc import Callable
from pathlib import Path

from tpkd.arrays.array_file import ArrayFile, TextFile
from tpkd.arrays.numpy_files import npz_names, open_numpy, open_numpy_texts
from tpkd.arrays.parquet_files import open_parquet, open_parquet_texts, parquet_names
from tpkd.arrays.safetensors_files import open_safetensors_array, safetensors_names
from tpkd.arrays.text_files import open_lines, open_table, open_table_texts, table_names
from tpkd.arrays.torch_files import open_torch, torch_names
from tpkd.errors import InputError, did_you_mean, some
from tpkd.files import reading

_ARRAYS: dict[str, Callable[[Path, str], ArrayFile]] = {
    ".npy": open_numpy,
    ".npz": open_numpy,
    ".safetensors": open_safetensors_array,
    ".pt": open_torch,
    ".pth": open_torch,
    ".csv": open_table,
    ".tsv": open_table,
    ".parquet": open_parquet,
}
_TEXTS: dict[str, Callable[[Path, str], TextFile | None]] = {
    ".npy": open_numpy_texts,
    ".npz": open_numpy_texts,
    ".csv": open_table_texts,
    ".tsv": open_table_texts,
    ".parquet": open_parquet_texts,
    ".txt": lambda path, key: open_lines(path),
}
_NAMES: dict[str, Callable[[Path], tuple[str, ...]]] = {
    ".npz": npz_names,
    ".safetensors": safetensors_names,
    ".pt": torch_names,
    ".pth": torch_names,
    ".csv": table_names,
    ".tsv": table_names,
    ".parquet": parquet_names,
}
ARRAY_SUFFIXES = tuple(_ARRAYS)


def open_array(path: str | Path, *, key: str = "logits", exact: bool = False) -> ArrayFile:
    """Open an array of numbers: a `.npy`, `.npz`, `.safetensors`, `.pt`, `.pth`, `.csv`, `.tsv` or `.parquet` file.

    Rows are read in blocks; no format but torch's before 1.6 is held in memory whole. Of `.pt` and `.pth` files only
    tensors are read (`weights_only=True`). In a table (`.csv`, `.tsv`, `.parquet`) an array is a column per class,
    whose names are the class names, or, in parquet, one column of lists; `tpkd.arrays.columns` says which columns.
    Numbers of text files are float64, a column of whole numbers int64. Parquet needs the extra `data`.

    Args:
        path: the file; its suffix names its format.
        key: which array to read if the file has several; ignored if it has one.
        exact: refuse a file without an array or column of that name.

    Returns:
        The array's shape and dtype, and its rows in blocks.

    Raises:
        InputError: the file is missing, unreadable, damaged, pickled, or holds several arrays and none named `key`.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> path = Path(tempfile.mkdtemp()) / "logits.npy"
        >>> np.save(path, np.zeros((5, 3), dtype=np.float32))
        >>> array = open_array(path)
        >>> array.shape, [len(block) for block in array.blocks(2)]
        ((5, 3), [2, 2, 1])
        >>> table = path.with_suffix(".csv")
        >>> _ = table.write_text("id,cat,dog\\n7,0.5,-1\\n8,2,1e-3\\n")
        >>> open_array(table).class_names, [block.tolist() for block in open_array(table).blocks(2)]
        (('cat', 'dog'), [[[0.5, -1.0], [2.0, 0.001]]])
    """
    path = _check_suffix(path, ARRAY_SUFFIXES)
    with reading(path):
        if exact:
            _check_key(path, key)
        return _ARRAYS[path.suffix](path, key)


def open_texts(path: str | Path, *, key: str = "labels", exact: bool = False) -> TextFile | None:
    """Open a column of texts, such as labels by name: a table, an array of texts, or a `.txt` file of lines.

    Args:
        path: the file; its suffix names its format.
        key: which array or column to read if the file has several.
        exact: refuse a file without an array or column of that name.

    Returns:
        The texts, in blocks; None where the file holds numbers. Whatever is in a text file is a text.

    Raises:
        InputError: the file is missing, unreadable or damaged, or holds several arrays and none named `key`.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "labels.csv"
        >>> _ = path.write_text("text,label\\nhello,greet\\nbye,leave\\n")
        >>> list(open_texts(path).blocks(10))
        [['greet', 'leave']]
    """
    path = _check_suffix(path, (*ARRAY_SUFFIXES, ".txt"))
    with reading(path):
        if exact:
            _check_key(path, key)
        opener = _TEXTS.get(path.suffix)
        return None if opener is None else opener(path, key)


def array_names(path: str | Path) -> tuple[str, ...]:
    """The names of the arrays or columns in a file, sorted except in text files; none for a single array.

    Raises:
        InputError: the file is missing, unreadable or damaged.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> path = Path(tempfile.mkdtemp()) / "teacher.npz"
        >>> np.savez(path, log_probs=np.zeros((2, 3)), indices=np.zeros((2, 3), int))
        >>> array_names(path)
        ('indices', 'log_probs')
    """
    path = Path(path)
    names = _NAMES.get(path.suffix)
    with reading(path):
        return () if names is None else names(path)


def _check_suffix(path: str | Path, suffixes: tuple[str, ...]) -> Path:
    path = Path(path)
    if path.is_dir() or path.suffix not in suffixes:
        kind = "a directory" if path.is_dir() else f"the suffix {path.suffix!r}"
        raise InputError(f"{path}: expected a {', '.join(suffixes)} file, found {kind}")
    return path


def _check_key(path: Path, key: str) -> None:
    names = array_names(path)
    if key not in names:
        found = some(names, 8) or "none with a name"
        raise InputError(f"{path}: expected an array or column named {key!r}, found {found}{did_you_mean(key, names)}")
