"""Arrays of `.safetensors` files."""

from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from tpkd.arrays.array_file import ArrayFile, check_rows, choose_key
from tpkd.class_names import recorded_names
from tpkd.errors import InputError
from tpkd.files import open_safetensors


def safetensors_names(path: Path) -> tuple[str, ...]:
    """The names of the tensors, sorted."""
    with open_safetensors(path) as archive:
        return tuple(sorted(archive.keys()))


def open_safetensors_array(path: Path, key: str) -> ArrayFile:
    """One tensor of a file, with the class names in its metadata."""
    with open_safetensors(path) as archive:
        name = choose_key(path, list(archive.keys()), key)
        shape = tuple(archive.get_slice(name).get_shape())
        check_rows(path, shape)
        dtype = archive.get_slice(name)[:0].dtype
    if dtype.is_complex:
        raise InputError(f"{path}: expected real numbers, found {str(dtype).removeprefix('torch.')}")

    def read(rows: int) -> Iterator[Tensor]:
        for start in range(0, shape[0], rows):
            # Reopened for every block, because the pages of a map stay resident while it is open.
            with open_safetensors(path) as archive:
                block = archive.get_slice(name)[start : start + rows].clone()
            yield block

    return ArrayFile(path, shape, dtype, read, recorded_names(path))
