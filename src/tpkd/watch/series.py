"""The curves of one run, read from its metrics as they grow."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tpkd.errors import InputError
from tpkd.files import open_regular
from tpkd.training.panels import PANELS, Panel

MAX_POINTS = 512
"""Points of a curve that are kept; every second one is dropped when there are more."""
_BLOCK = 1 << 20
_TAIL = 256


class Thinned:
    """A curve of any length in bounded memory: evenly spaced points, and always the last one.

    Example:
        >>> curve = Thinned()
        >>> for step in range(1, 2001):
        ...     curve.add(step, float(step))
        >>> steps, values = curve.columns()
        >>> len(steps) <= MAX_POINTS + 1, steps[0], steps[-1], values[-1]
        (True, 1, 2000, 2000.0)
    """

    def __init__(self) -> None:
        """An empty curve."""
        self._points: list[tuple[int, float]] = []
        self._last: tuple[int, float] | None = None
        self._stride, self._count = 1, 0

    def add(self, step: int, value: float) -> None:
        """One more point; a step that was there already begins again from there, as a run that continues does."""
        while self._points and self._points[-1][0] >= step:
            self._points.pop()
        if self._count % self._stride == 0:
            self._points.append((step, value))
        self._count += 1
        self._last = (step, value)
        if len(self._points) > MAX_POINTS:
            self._points = self._points[::2]
            self._stride *= 2

    @property
    def last(self) -> tuple[int, float] | None:
        """The newest point."""
        return self._last

    def columns(self) -> tuple[list[int], list[float]]:
        """Steps and values."""
        points = self._points
        if self._last is not None and (not points or points[-1] != self._last):
            points = [*points, self._last]
        return [step for step, _ in points], [value for _, value in points]


class RunReader:
    """Follows the metrics of a run. What is half written waits, what is not ours is counted and left out.

    A run that continues cuts its metrics back to its checkpoint: a file that is shorter, or other than it was, is read
    anew.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "metrics.jsonl"
        >>> _ = path.write_text('{"kind": "train", "step": 1, "loss": 2.0}\\n{"kind": "train", "st')
        >>> run = RunReader(path)
        >>> run.refresh(), run.step, run.curves["loss"].last
        (True, 1, (1, 2.0))
    """

    def __init__(self, path: Path, panels: Sequence[Panel] = PANELS) -> None:
        """Follow a file that may not be there yet."""
        self._path, self._panels = path, panels
        self._by_kind = {panel.kind: [each for each in panels if each.kind == panel.kind] for panel in panels}
        self.version = 0
        """Counts the changes."""
        self.changed: float | None = None
        """When the file was written last, in seconds since 1970."""
        self._forget()

    def _forget(self) -> None:
        self.curves = {panel.name: Thinned() for panel in self._panels}
        self.step, self.unreadable = 0, 0
        self._offset, self._tail = 0, b""

    def refresh(self) -> bool:
        """Read what is new; returns whether anything is."""
        try:
            found = self._path.stat()
            self.changed = found.st_mtime
            if found.st_size == self._offset and self.version:
                return False
            with open_regular(self._path) as file:
                if not self._continues(file, found.st_size):
                    self._forget()
                before = self._offset
                file.seek(self._offset)
                self._read(file)
        except FileNotFoundError:
            return False
        except (OSError, InputError):  # another machine may be replacing it; the next look finds it
            return False
        if self._offset == before and self.version:
            return False
        self.version += 1
        return True

    def _continues(self, file: Any, size: int) -> bool:
        if size < self._offset:
            return False
        file.seek(self._offset - len(self._tail))
        return bool(file.read(len(self._tail)) == self._tail)

    def _read(self, file: Any) -> None:
        rest = b""
        while block := file.read(_BLOCK):
            whole, _, rest = (rest + block).rpartition(b"\n")
            if not whole and len(rest) > _BLOCK:  # no line of ours is as long
                self.unreadable += 1
                self._offset, self._tail, rest = self._offset + len(rest), rest[-_TAIL:], b""
                continue
            for line in whole.split(b"\n") if whole else ():
                self._take(line)
            read = len(whole) + 1 if whole else 0
            self._offset += read
            self._tail = (self._tail + whole + b"\n")[-_TAIL:] if whole else self._tail

    def _take(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
        except ValueError:
            self.unreadable += bool(line.strip())
            return
        step = entry.get("step") if isinstance(entry, dict) else None
        if not isinstance(step, int) or isinstance(step, bool):
            self.unreadable += 1
            return
        self.step = step
        for panel in self._by_kind.get(entry.get("kind"), ()):
            value = entry.get(panel.key)
            if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf"):
                self.curves[panel.name].add(step, float(value))
