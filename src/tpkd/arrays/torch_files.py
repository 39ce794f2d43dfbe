"""Torch's own files (`.pt`, `.pth`): tensors alone are read from them, no code is run."""

import re
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tpkd.arrays.array_file import ArrayFile, check_rows, choose_key
from tpkd.errors import InputError, reason, some
from tpkd.files import file_size, open_regular

MAX_LEGACY_BYTES = 4 << 30
"""Of a file older than torch 1.6, which cannot be mapped: it is held in memory whole."""


def load_tensors(path: Path, *, mapped: bool = False) -> Any:
    """What torch's own reader finds in a file with `weights_only=True`, on the CPU.

    Args:
        path: the file.
        mapped: tensors are maps of the file, which take memory only while they are used; a file of the format before
            torch 1.6 is read whole.

    Raises:
        InputError: the file is missing or damaged, or reading it would run code.

    Example:
        >>> import tempfile
        >>> file = Path(tempfile.mkdtemp()) / "logits.pt"
        >>> torch.save({"logits": torch.zeros(2, 3)}, file)
        >>> load_tensors(file)["logits"].shape
        torch.Size([2, 3])
    """
    try:
        # torch warns about pickle protocols before it reads or refuses them.
        with open_regular(path) as file, warnings.catch_warnings(action="ignore"):
            if mapped and _can_be_mapped(path, file):
                return torch.load(str(path), map_location="cpu", weights_only=True, mmap=True)
            return torch.load(file, map_location="cpu", weights_only=True)
    except InputError:
        raise
    except Exception as error:  # a pickle can be broken in any way; none of our code runs inside
        raise InputError(f"{path}: {_refusal(error)}") from error


def _can_be_mapped(path: Path, file: Any) -> bool:
    """Whether the file is an archive of plain bytes; torch maps packed ones too, and takes their bytes for numbers."""
    is_archive = zipfile.is_zipfile(file)
    if is_archive:
        with zipfile.ZipFile(file) as archive:
            packed = [info.filename for info in archive.infolist() if info.compress_type != zipfile.ZIP_STORED]
        if packed:
            raise InputError(f"{path}: expected an archive as torch.save writes it, found {packed[0]} compressed")
    elif file_size(path) > MAX_LEGACY_BYTES:
        raise InputError(
            f"{path}: expected at most {MAX_LEGACY_BYTES} bytes in a file older than torch 1.6, found more; save it "
            "again with torch.save"
        )
    file.seek(0)
    return is_archive


def _refusal(error: Exception) -> str:
    """Why torch refused a file; its own message advises to let the file run code."""
    forbidden = re.search(r"GLOBAL (\S+)", str(error))
    if forbidden:
        return (
            f"expected tensors alone, found {forbidden[1]}, which reading would run; where you trust the file, keep "
            "its tensors with safetensors.torch.save_file"
        )
    words = reason(error)
    return f"damaged or not what its suffix says: {words if len(words) < 200 else type(error).__name__}"


def torch_names(path: Path) -> tuple[str, ...]:
    """The names of the tensors, sorted; none where the file is one tensor."""
    content = load_tensors(path, mapped=True)
    return () if isinstance(content, Tensor) else tuple(sorted(_named_tensors(path, content)))


def open_torch(path: Path, key: str) -> ArrayFile:
    """The tensor of a file, or one of those in its dictionary, with the `class_names` beside it."""
    content = load_tensors(path, mapped=True)
    name = None if isinstance(content, Tensor) else choose_key(path, list(_named_tensors(path, content)), key)
    values = _dense(path, content, name)
    shape = tuple(values.shape)
    check_rows(path, shape)
    class_names = None if name is None else _class_names(path, content)

    def read(rows: int) -> Iterator[Tensor]:
        with open_regular(path) as file:
            whole = None if zipfile.is_zipfile(file) else load_tensors(path)
        for start in range(0, shape[0], rows):
            # Mapped again for every block, because the pages of a map stay resident while it is open.
            content = load_tensors(path, mapped=True) if whole is None else whole
            yield _dense(path, content, name)[start : start + rows].clone(memory_format=torch.contiguous_format)

    return ArrayFile(path, shape, values.dtype, read, class_names)


def _named_tensors(path: Path, content: Any) -> dict[str, Tensor]:
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected a tensor, or a dictionary of tensors, found {type(content).__name__}")
    tensors = {name: value for name, value in content.items() if isinstance(value, Tensor) and isinstance(name, str)}
    if not tensors:
        found = some([repr(name) for name in content], 8) or "nothing"
        raise InputError(f"{path}: expected a tensor, or a dictionary of tensors, found a dictionary of {found}")
    return tensors


def _dense(path: Path, content: Any, name: str | None) -> Tensor:
    value: Tensor = content if name is None else content[name]
    plain = type(value) in (Tensor, torch.nn.Parameter) and value.layout == torch.strided and not value.is_nested
    if not plain or value.is_quantized or value.is_complex() or value.device.type != "cpu":
        kind = f"{value.dtype} in layout {value.layout} on {value.device.type}".replace("torch.", "")
        raise InputError(f"{path}: expected a dense tensor of real numbers, found {kind}")
    return value.detach()


def _class_names(path: Path, content: dict[str, Any]) -> tuple[str, ...] | None:
    names = content.get("class_names")
    if names is None:
        return None
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise InputError(f"{path}: class_names: expected a list of names, found {type(names).__name__}")
    return tuple(names) or None
