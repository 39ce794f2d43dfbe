"""Checkpoints: directories of safetensors and JSON that appear whole or not at all, the newest always readable."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from tpkd.class_names import to_metadata
from tpkd.files import InputError, reading, sync_directory

STATE_NAME = "state.json"
SCHEMA = 1
MAX_STATE_BYTES = 64 << 20
"""Scalars of optimiser and objective and a few sums; more is not ours."""

_STEP = re.compile(r"step-(\d{6,})")
_TENSOR_FILE = re.compile(r"[a-z]+\.safetensors")

Groups = Mapping[str, Mapping[str, Tensor]]


@dataclass(frozen=True)
class Checkpoint:
    """What was read back: named tensors by group, and plain values."""

    step: int
    groups: dict[str, dict[str, Tensor]]
    values: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run, at most `keep` of them.

    A checkpoint is written into a hidden directory, flushed to disk, and renamed; what is hidden is never read, and is
    swept away when the run starts again. Files are hashed when they are written and when they are read.

    Example:
        >>> import tempfile
        >>> import torch
        >>> checkpoints = Checkpoints(Path(tempfile.mkdtemp()), keep=2)
        >>> for step in (10, 20, 30):
        ...     checkpoints.save(step, {"model": {"weight": torch.full((2,), float(step))}}, {"cursor": 64 * step})
        >>> checkpoints.steps()
        (20, 30)
        >>> newest = checkpoints.load()
        >>> newest.groups["model"]["weight"], newest.values
        (tensor([30., 30.]), {'cursor': 1920})
    """

    def __init__(self, directory: Path, *, keep: int) -> None:
        """The checkpoints below `directory`, which need not exist yet."""
        self.directory = directory
        self.keep = keep

    def steps(self) -> tuple[int, ...]:
        """The steps of which there is a checkpoint, in order."""
        if not self.directory.is_dir():
            return ()
        found = (_STEP.fullmatch(path.name) for path in self.directory.iterdir() if path.is_dir())
        return tuple(sorted(int(match[1]) for match in found if match))

    def sweep(self) -> None:
        """Remove what a killed run left half written; for whoever holds the run directory."""
        if self.directory.is_dir():
            for path in self.directory.glob(".step-*"):
                shutil.rmtree(path)

    def save(self, step: int, groups: Groups, values: Mapping[str, Any]) -> None:
        """Publish the checkpoint of a step, then drop those that are too many.

        Raises:
            InputError: the disk is full, read-only or broken; names the path. Earlier checkpoints are untouched.
        """
        final, hidden = self._path(step), self.directory / f".step-{step:06d}.partial"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            hidden.mkdir()
            files = {}
            for name, tensors in groups.items():
                # Whoever takes the weights out of a checkpoint takes the names of their classes along.
                data = _serialise(tensors, to_metadata(values.get("class_names")) if name == "model" else {})
                files[f"{name}.safetensors"] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
                _write(hidden / f"{name}.safetensors", data)
            state = {"schema": SCHEMA, "step": step, "files": files, "values": dict(values)}
            _write(hidden / STATE_NAME, json.dumps(state, allow_nan=False).encode())
            sync_directory(hidden)
            os.rename(hidden, final)
            sync_directory(self.directory)
            self._drop_old()
        except BaseException as error:
            shutil.rmtree(hidden, ignore_errors=True)
            if isinstance(error, OSError):
                raise InputError(f"{final}: cannot be written: {error.strerror or error}") from error
            raise

    def _path(self, step: int) -> Path:
        return self.directory / f"step-{step:06d}"

    def _drop_old(self) -> None:
        for step in self.steps()[: -self.keep]:
            # Renamed first: a checkpoint that is half deleted must not look like one.
            hidden = self.directory / f".step-{step:06d}.old"
            os.rename(self._path(step), hidden)
            shutil.rmtree(hidden)

    def load(self) -> Checkpoint | None:
        """The newest checkpoint, None where there is none.

        Raises:
            InputError: a file of it is missing, damaged, or not what was written; names the file.
        """
        steps = self.steps()
        if not steps:
            return None
        directory = self._path(steps[-1])
        state = _read_state(directory, steps[-1])
        groups = {}
        for name, entry in state["files"].items():
            if not _TENSOR_FILE.fullmatch(name):  # no other name is ever opened, so none can lead out of the directory
                raise InputError(f"{directory / STATE_NAME}: files: expected NAME.safetensors, found {name!r}")
            groups[name.removesuffix(".safetensors")] = _read_tensors(directory / name, entry)
        return Checkpoint(steps[-1], groups, state["values"])


def _serialise(tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> bytes:
    from safetensors.torch import save

    # Copies, because names may share memory, which the format refuses.
    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    return save(copies, metadata=metadata or None)


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        written = os.fstat(file.fileno()).st_size
    if written != len(data):
        raise OSError(None, f"short write, {written} of {len(data)} bytes of {path.name}")


def _read_state(directory: Path, step: int) -> dict[str, Any]:
    path = directory / STATE_NAME
    with reading(path):
        if path.stat().st_size > MAX_STATE_BYTES:
            raise InputError(f"{path}: expected at most {MAX_STATE_BYTES} bytes, found {path.stat().st_size}")
        state = json.loads(path.read_text(encoding="utf-8"))
        found = {key: state.get(key) for key in ("schema", "step")} if isinstance(state, dict) else state
        if found != {"schema": SCHEMA, "step": step}:
            raise InputError(f"{path}: expected schema {SCHEMA} and step {step}, found {found!r}")
        if not isinstance(state.get("files"), dict) or not isinstance(state.get("values"), dict):
            raise InputError(f"{path}: expected files and values, found {', '.join(state)}")
    checked: dict[str, Any] = state
    return checked


def _read_tensors(path: Path, entry: Any) -> dict[str, Tensor]:
    from safetensors.torch import load

    expected = (entry.get("bytes"), entry.get("sha256")) if isinstance(entry, dict) else None
    with reading(path):
        size = path.stat().st_size
        if expected is None or size != expected[0]:
            raise InputError(f"{path}: expected {expected and expected[0]} bytes, found {size}")
        data = path.read_bytes()
        found = hashlib.sha256(data).hexdigest()
        if found != expected[1]:
            raise InputError(f"{path}: expected SHA-256 {expected[1]}, found {found}")
        return load(data)
