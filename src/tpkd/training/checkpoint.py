"""Checkpoints: directories of safetensors and JSON that appear whole or not at all, bound by one digest."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from tpkd.class_names import to_metadata
from tpkd.errors import InputError
from tpkd.files import first_free, open_regular, read_bounded, reading, sync_directory, writing

STATE_NAME = "state.json"
DIGEST_NAME = "state.sha256"
"""SHA-256 of `state.json`, as `sha256sum --check` takes it; the state holds the SHA-256 of every other file."""
SCHEMA = 2
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


@dataclass(frozen=True)
class Found:
    """The newest checkpoint that is whole, None where there is none at all; and why newer ones are not."""

    checkpoint: Checkpoint | None
    damaged: dict[int, str]
    """Step -> one line with the file."""


class Checkpoints:
    """The checkpoints of one run, at most `keep` of them.

    A checkpoint is written into a hidden directory, flushed to disk, and renamed; what is hidden is never read, and is
    swept away when the run starts again. One digest binds it: that of its state, which holds those of its other files.

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
        """The steps of which there is a checkpoint, in order.

        Raises:
            InputError: the directory cannot be read.
        """
        if not self.directory.is_dir():
            return ()
        with reading(self.directory):
            found = [_STEP.fullmatch(path.name) for path in self.directory.iterdir() if path.is_dir()]
        return tuple(sorted(int(match[1]) for match in found if match))

    def sweep(self) -> None:
        """Remove what a killed run left half written; for the process that holds the run directory."""
        if self.directory.is_dir():
            for path in self.directory.glob(".step-*"):
                with writing(path, "removed"):
                    shutil.rmtree(path)

    def save(self, step: int, groups: Groups, values: Mapping[str, Any]) -> None:
        """Publish the checkpoint of a step in the place of any earlier one, then drop those that are too many.

        Raises:
            InputError: the disk is full, read-only or broken, or the directory above is gone; names the path. Earlier
                checkpoints are untouched.
        """
        final, hidden = self._path(step), self.directory / f".step-{step:06d}.partial"
        with writing(final), ExitStack() as clean_up:
            clean_up.callback(shutil.rmtree, hidden, ignore_errors=True)
            # Not the directories above it: a run that was moved away must not come up again in its old place.
            self.directory.mkdir(exist_ok=True)
            hidden.mkdir()
            files = {}
            for name, tensors in groups.items():
                # The class names travel with the weights.
                data = _serialise(tensors, to_metadata(values.get("class_names")) if name == "model" else {})
                files[f"{name}.safetensors"] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
                _write(hidden / f"{name}.safetensors", data)
            state = {"schema": SCHEMA, "step": step, "files": files, "values": dict(values)}
            data = json.dumps(state, allow_nan=False).encode()
            _write(hidden / STATE_NAME, data)
            _write(hidden / DIGEST_NAME, _digest_line(data))
            sync_directory(hidden)
            self._hide(step)
            os.rename(hidden, final)
            sync_directory(self.directory)
            self._drop_old()

    def remove(self) -> int:
        """Remove every checkpoint, and the directory if nothing else is in it; returns the number of bytes removed.

        Raises:
            InputError: something cannot be removed; names it.
        """
        if not self.directory.is_dir():
            return 0
        size = 0
        with writing(self.directory, "removed"):
            for step in self.steps():
                size += sum(path.stat().st_size for path in self._path(step).rglob("*") if path.is_file())
                self._hide(step)
            for path in self.directory.glob(".step-*"):
                shutil.rmtree(path)
            if not any(self.directory.iterdir()):
                self.directory.rmdir()
        return size

    def _path(self, step: int) -> Path:
        return self.directory / f"step-{step:06d}"

    def _drop_old(self) -> None:
        for step in self.steps()[: -self.keep]:
            self._hide(step)
        for path in self.directory.glob(".step-*.old"):
            shutil.rmtree(path)

    def _hide(self, step: int) -> None:
        """Take a checkpoint out of sight; one that is half deleted must not look like one."""
        if self._path(step).exists():
            os.rename(self._path(step), self.directory / f".step-{step:06d}.old")

    def load(self, step: int | None = None) -> Checkpoint | None:
        """The checkpoint of a step, by default the newest; None where there is none.

        Raises:
            InputError: a file of it is missing, damaged, or not what was written; names the file.
        """
        steps = self.steps()
        if step is None and not steps:
            return None
        step = steps[-1] if step is None else step
        directory = self._path(step)
        state = _read_state(directory, step)
        groups = {}
        for name, entry in state["files"].items():
            if not _TENSOR_FILE.fullmatch(name):  # no other name is ever opened, so none can lead out of the directory
                raise InputError(f"{directory / STATE_NAME}: files: expected NAME.safetensors, found {name!r}")
            groups[name.removesuffix(".safetensors")] = _read_tensors(directory / name, entry)
        return Checkpoint(step, groups, state["values"])

    def find(self, check: Callable[[Checkpoint], None] = lambda checkpoint: None) -> Found:
        """The newest checkpoint that is whole; newer ones that are not are named.

        Args:
            check: raises InputError where something outside that a checkpoint refers to is not as it was.

        Raises:
            InputError: there are checkpoints and none of them is whole; a run never starts over silently.
        """
        damaged: dict[int, str] = {}
        for step in reversed(self.steps()):
            try:
                checkpoint = self.load(step)
                assert checkpoint is not None
                check(checkpoint)
            except OtherVersionError:
                raise
            except InputError as error:
                damaged[step] = str(error)
            else:
                return Found(checkpoint, damaged)
        if damaged:
            none = (
                f"none of {len(damaged)} checkpoints is whole" if len(damaged) > 1 else "there is no other checkpoint"
            )
            way_out = f"put back a copy, or move {self.directory.parent} away and the same command starts anew"
            raise InputError(f"{next(iter(damaged.values()))}; {none}: {way_out}")
        return Found(None, {})

    def set_aside(self, step: int) -> Path:
        """Rename a damaged checkpoint, so that nothing takes it for one and its step can be saved again.

        Returns:
            Its new name, `step-NNNNNN.damaged-N`.
        """
        path = self._path(step)
        with writing(path, "renamed"):
            return path.rename(first_free(f"{path}.damaged"))


class OtherVersionError(InputError):
    """A checkpoint that another version of tpkd has written."""


def _digest_line(state: bytes) -> bytes:
    return f"{hashlib.sha256(state).hexdigest()}  {STATE_NAME}\n".encode()


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
    path, digest = directory / STATE_NAME, directory / DIGEST_NAME
    data = read_bounded(path, MAX_STATE_BYTES)
    if not digest.exists():
        _check_version(path, data)
    written = read_bounded(digest, len(_digest_line(b"")))
    if written[64:] != _digest_line(b"")[64:]:
        raise InputError(f"{digest}: expected a SHA-256 and {STATE_NAME}, found {written[:80]!r}")
    if written != _digest_line(data):
        found = hashlib.sha256(data).hexdigest()
        expected = written[:64].decode(errors="replace")
        raise InputError(f"{path}: expected SHA-256 {expected} as in {digest}, found {found}")
    _check_version(path, data)
    with reading(path):
        state = json.loads(data)
        if not isinstance(state, dict) or state.get("step") != step:
            other = state.get("step") if isinstance(state, dict) else state
            raise InputError(f"{path}: expected step {step}, found {other!r}")
        if not isinstance(state.get("files"), dict) or not isinstance(state.get("values"), dict):
            raise InputError(f"{path}: expected files and values, found {', '.join(state)}")
    checked: dict[str, Any] = state
    return checked


def _check_version(path: Path, data: bytes) -> None:
    """Refuse a state of another version in words that say so, rather than as damage."""
    try:
        schema = json.loads(data)["schema"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return  # whatever it is, it is not ours
    if isinstance(schema, int) and schema != SCHEMA:
        who = "an earlier" if schema < SCHEMA else "a later"
        what = f"written by {who} version of tpkd (checkpoints of schema {schema}, expected {SCHEMA})"
        way_out = f"finish the run with the version that started it, or move {path.parents[2]} away to start anew"
        raise OtherVersionError(f"{path}: {what}; {way_out}")


def _read_tensors(path: Path, entry: Any) -> dict[str, Tensor]:
    from safetensors.torch import load

    expected = (entry.get("bytes"), entry.get("sha256")) if isinstance(entry, dict) else None
    with reading(path), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if expected is None or size != expected[0]:
            raise InputError(f"{path}: expected {expected and expected[0]} bytes, found {size}")
        data = file.read(size)
        found = hashlib.sha256(data).hexdigest()
        if found != expected[1]:
            raise InputError(f"{path}: expected SHA-256 {expected[1]}, found {found}")
        return load(data)
