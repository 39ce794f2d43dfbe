"""What a run writes down as it goes: metrics as JSON lines and for TensorBoard, and a plain log of its starts."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tpkd.files import InputError, extra

METRICS_NAME = "metrics.jsonl"
LOG_NAME = "run.log"
BOARD_NAME = "tensorboard"


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
    """`metrics.jsonl` and `tensorboard/` of one run, cut back to where it continues; a process that is not the first
    writes nothing."""

    def __init__(self, directory: Path, *, offset: int, step: int, tensorboard: bool, writes: bool) -> None:
        """Continue after `offset` bytes of metrics and `step` steps."""
        self._directory, self._writes, self._board = directory, writes, None
        if not writes:
            return
        path = directory / METRICS_NAME
        found = path.stat().st_size if path.exists() else 0
        if found < offset:
            raise InputError(f"{path}: expected at least {offset} bytes up to step {step}, found {found}")
        with _writing(path):
            self._file = path.open("ab")
            self._file.truncate(offset)
            self._file.seek(offset)  # truncation leaves the position where the end was
        if tensorboard:
            with extra("train"):
                from torch.utils.tensorboard import SummaryWriter
            self._board = SummaryWriter(str(directory / BOARD_NAME), purge_step=step + 1)

    def __enter__(self) -> Self:
        """The log itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files; what ended the run early goes to the log."""
        if error is not None:
            self.note(f"stopped: {error or type(error).__name__}")
        if self._writes:
            self._file.close()
        # After an interrupt its thread may have missed the call to end, and closing would wait for minutes.
        if self._board is not None and kind is not KeyboardInterrupt:
            self._board.close()

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """One line; of the numbers those that are not finite become null."""
        if not self._writes:
            return
        plain = {name: _plain(value) for name, value in values.items()}
        line = json.dumps({"kind": kind, "step": step, **plain}, allow_nan=False)
        with _writing(self._directory / METRICS_NAME):
            self._file.write(f"{line}\n".encode())
            self._file.flush()
        if self._board is not None:
            for name, value in plain.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    self._board.add_scalar(f"{kind}/{name}", value, step)

    def sync(self) -> int:
        """Flush the metrics to disk; returns how many bytes of them belong to the run so far."""
        if not self._writes:
            return 0
        with _writing(self._directory / METRICS_NAME):
            os.fsync(self._file.fileno())
        return self._file.tell()

    def note(self, text: str) -> None:
        """One line for people, with the time."""
        if self._writes:
            with (self._directory / LOG_NAME).open("a", encoding="utf-8") as log:
                log.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {text}\n")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
