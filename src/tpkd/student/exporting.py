"""From a run to a folder for another program: written beside it, checked, and published by one rename."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tpkd.errors import InputError, did_you_mean
from tpkd.files import sync_directory, write_file, writing
from tpkd.student.card import CARD_NAME, model_card, read_environment
from tpkd.student.loading import Student, load_student, read_run
from tpkd.student.to_folder import write_folder
from tpkd.student.to_onnx import write_onnx
from tpkd.student.to_timm import write_timm
from tpkd.student.to_transformers import write_transformers


def _write_hf(student: Student, folder: Path) -> list[str]:
    """The library that the network belongs to decides."""
    if student.recipe.kind == "text":
        return write_transformers(student, folder)
    if student.recipe.model.startswith("timm:"):
        return write_timm(student, folder)
    raise InputError(
        f"{student.recipe.model}: a network of our own, which no other library has; use onnx or safetensors"
    )


FORMATS: dict[str, Callable[[Student, Path], list[str]]] = {
    "safetensors": write_folder,
    "onnx": write_onnx,
    "hf": _write_hf,
}
"""What writes a folder of each format, and returns notes for its model card."""


def export_student(run: str | Path, out: str | Path, format: str) -> list[str]:
    """Write the student of a finished run to a new folder, with a model card.

    Args:
        run: what `tpkd train` made.
        out: the folder, which must not exist or be empty.
        format: `safetensors`, `onnx` or `hf`.

    Returns:
        How to use what was written.

    Raises:
        InputError: an unknown format, a folder that exists, not a finished run, or a student that the format cannot
            express.
        MismatchError: what was exported computes something else; nothing was published.
    """
    run, out = Path(run), Path(out)
    if format not in FORMATS:
        hint = did_you_mean(format, FORMATS)
        raise InputError(f"--format {format}: expected one of {', '.join(FORMATS)}{hint}")
    check_folder(out)
    config, result = read_run(run)
    student = load_student(run)
    with published_folder(out) as folder:
        notes = FORMATS[format](student, folder)
        write_file(folder / CARD_NAME, model_card(config, result, read_environment(run), notes))
    return notes


def check_folder(out: Path) -> None:
    """Refuse a folder that has something in it, or the name of a single file."""
    if out.suffix in (".onnx", ".safetensors"):
        raise InputError(f"{out}: expected the name of a folder, found that of a file; several files go there")
    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        raise InputError(f"{out}: expected a new folder, found one that exists; remove it or choose another name")


@contextmanager
def published_folder(out: Path) -> Iterator[Path]:
    """A folder that appears whole or not at all, and never over another.

    Example:
        >>> place = Path(tempfile.mkdtemp()) / "new"
        >>> with published_folder(place) as folder:
        ...     _ = (folder / "file").write_text("whole")
        >>> (place / "file").read_text()
        'whole'
    """
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.", suffix=".partial"))
        try:
            yield temporary
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o777 & ~umask)
            for path in [path for path in temporary.rglob("*") if path.is_file()]:
                with path.open("rb") as file:
                    os.fsync(file.fileno())
            check_folder(out)
            os.rename(temporary, out)  # an empty folder gives way; anything in it is an error of the system
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_directory(out.parent)
