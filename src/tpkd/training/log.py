"""What a run writes down as it goes: metrics as JSON lines and for trackers, and a plain log of its starts."""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tpkd.errors import InputError
from tpkd.files import open_regular, reading, writing
from tpkd.training.checkpoint import Checkpoint
from tpkd.training.trackers import Trackers

METRICS_NAME = "metrics.jsonl"
LOG_NAME = "run.log"
_BLOCK = 1 << 20


class Averages:
    """Means over the steps since the last reset; plain numbers that a checkpoint holds.

    Example:
        >>> averages = Averages()
        >>> averages.add({"loss": 2.0}); averages.add({"loss": 4.0, "rate": 1.0})
        >>> averages.means()
        {'loss': 3.0, 'rate': 1.0}
    """

    def __init__(self, state: Mapping[str, list[float]] | None = None) -> None:
        """Start from nothing, or from what `state` gave."""
        self._sums = {name: list(pair) for name, pair in (state or {}).items()}

    def add(self, values: Mapping[str, float]) -> None:
        """One more value of each name; one that is not finite leaves its name alone."""
        for name, value in values.items():
            if math.isfinite(value):
                pair = self._sums.setdefault(name, [0.0, 0.0])
                pair[0] += value
                pair[1] += 1

    def means(self) -> dict[str, float]:
        """The mean of every name that has a value."""
        return {name: total / count for name, (total, count) in self._sums.items()}

    def reset(self) -> None:
        """Forget everything."""
        self._sums = {}

    @property
    def state(self) -> dict[str, list[float]]:
        """Sum and count of every name."""
        return {name: list(pair) for name, pair in self._sums.items()}


class RunLog:
    """`metrics.jsonl`, `run.log` and the trackers of one run, the metrics cut back to where it continues; a process
    that is not the first writes nothing.

    Files stay open: if the run directory is moved, the reason why the run ended is written there.
    """

    def __init__(self, directory: Path, *, offset: int, step: int, trackers: Trackers, writes: bool) -> None:
        """Continue after `offset` bytes of metrics and `step` steps."""
        self._directory, self._writes, self._trackers = directory, writes, trackers
        if not writes:
            return
        path = directory / METRICS_NAME
        self._hash = hash_metrics(path, offset, step)
        with writing(directory / LOG_NAME):
            self._notes = (directory / LOG_NAME).open("ab", buffering=0)
        with writing(path):
            self._file = path.open("ab", buffering=0)
            self._file.truncate(offset)
            self._file.seek(offset)  # truncation leaves the position where the end was
        self._note_all(trackers.start(step))

    def __enter__(self) -> Self:
        """The log itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files and the trackers; what ended the run early goes to the log."""
        if not self._writes:
            return
        try:
            if error is not None:
                self.note(f"stopped: {error or type(error).__name__}")
            self._note_all(self._trackers.finish())
        except InputError:
            if error is None:  # a disk that refuses this as well must not hide what happened first
                raise
        finally:
            for file in (self._file, self._notes):
                file.close()

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """One line; of the numbers those that are not finite become null."""
        if not self._writes:
            return
        plain = {name: _plain(value) for name, value in values.items()}
        line = f"{json.dumps({'kind': kind, 'step': step, **plain}, allow_nan=False)}\n".encode()
        with writing(self._directory / METRICS_NAME):
            _write_all(self._file, line)
        self._hash.update(line)
        numbers = {
            f"{kind}/{name}": value
            for name, value in plain.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        self._note_all(self._trackers.log(numbers, step))

    def sync(self) -> tuple[int, str]:
        """Flush the metrics to disk; returns how many bytes of them belong to the run so far, and their SHA-256."""
        if not self._writes:
            return 0, ""
        with writing(self._directory / METRICS_NAME):
            os.fsync(self._file.fileno())
            return self._file.tell(), self._hash.hexdigest()

    def note(self, text: str) -> None:
        """One line for people, with the time.

        Raises:
            InputError: the disk refuses it; names the file.
        """
        if self._writes:
            with writing(self._directory / LOG_NAME):
                _write_all(self._notes, f"{datetime.now(UTC).isoformat(timespec='seconds')} {text}\n".encode())

    def _note_all(self, sentences: Iterable[str]) -> None:
        for sentence in sentences:
            self.note(sentence)


def hash_metrics(path: Path, size: int, step: int) -> "hashlib._Hash":
    """The hash of the first bytes of a run's metrics, those up to a step; more may follow.

    Raises:
        InputError: there are not so many.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "metrics.jsonl"
        >>> _ = path.write_text("{}\\n{}\\n")
        >>> hash_metrics(path, 3, step=1).hexdigest() == hashlib.sha256(b"{}\\n").hexdigest()
        True
    """
    found, left = hashlib.sha256(), size
    with reading(path):
        if size or path.exists():
            with open_regular(path) as file:
                while left and (block := file.read(min(left, _BLOCK))):
                    found.update(block)
                    left -= len(block)
    if left:
        raise InputError(f"{path}: expected at least {size} bytes up to step {step}, found {size - left}")
    return found


def check_metrics(directory: Path, checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint whose metrics are not those that were written up to its step.

    Raises:
        InputError: names the file.
    """
    path, values = directory / METRICS_NAME, checkpoint.values
    size, expected = values.get("metrics_bytes"), values.get("metrics_sha256")
    found = hash_metrics(path, size if isinstance(size, int) else 0, checkpoint.step).hexdigest()
    if found != expected:
        which = f"for its first {size} bytes, up to step {checkpoint.step}"
        raise InputError(f"{path}: expected SHA-256 {expected} {which}, found {found}")


def _write_all(file: FileIO, data: bytes) -> None:
    # Without a buffer, so that nothing is left to fail when the file is closed; a write may then be a part.
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
