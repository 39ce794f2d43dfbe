"""Scalars for TensorBoard: numbered files of events that name no machine, written in the thread that trains."""

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tpkd.errors import extra

_FILE_VERSION = "brain.Event:2"


class Board:
    """One event file per start of a run.

    TensorBoard's own writer, which accelerate's tracker uses, puts the name of the machine into that of the file, and
    writes in a thread whose errors come late and which an interrupt may leave hanging.

    Example:
        >>> import tempfile
        >>> directory = Path(tempfile.mkdtemp())
        >>> for step in (0, 4):
        ...     board = Board(directory, step)
        ...     board.add("train/loss", 0.5, step + 1)
        ...     board.close()
        >>> sorted(path.name for path in directory.iterdir())
        ['events.out.tfevents.000001', 'events.out.tfevents.000002']
    """

    def __init__(self, directory: Path, step: int) -> None:
        """Go on after a step: what an earlier start wrote about later ones is hidden."""
        with extra("tensorboard"):
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from tensorboard.summary.writer.record_writer import RecordWriter
        directory.mkdir(exist_ok=True)
        # They are read in the order of their names.
        numbers = [int(path.name[-6:]) for path in directory.glob("events.out.tfevents.[0-9][0-9][0-9][0-9][0-9][0-9]")]
        self._file = (directory / f"events.out.tfevents.{max(numbers, default=0) + 1:06d}").open("xb", buffering=0)
        self._event, self._records = Event, RecordWriter(self._file)
        self._write(file_version=_FILE_VERSION)
        self._write(step=step + 1, session_log=SessionLog(status=SessionLog.START))

    def add(self, name: str, value: float, step: int) -> None:
        """One more point of a curve."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._write(step=step, summary=Summary(value=[Summary.Value(tag=name, simple_value=value)]))

    def lay_out(self, category: str, panels: Mapping[str, Sequence[str]]) -> None:
        """Arrange curves in the tab "Custom scalars": the names of some charts, and the curves that each shows."""
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING
        from tensorboard.plugins.custom_scalar.layout_pb2 import Category, Chart, Layout, MultilineChartContent
        from tensorboard.plugins.custom_scalar.metadata import CONFIG_SUMMARY_TAG, create_summary_metadata

        def chart(title: str, tags: Sequence[str]) -> Any:
            exactly = [f"^{re.escape(tag)}$" for tag in tags]
            return Chart(title=title, multiline=MultilineChartContent(tag=exactly))

        layout = Layout(category=[Category(title=category, chart=[chart(*panel) for panel in panels.items()])])
        tensor = TensorProto(dtype=DT_STRING, string_val=[layout.SerializeToString()])
        value = Summary.Value(tag=CONFIG_SUMMARY_TAG, metadata=create_summary_metadata(), tensor=tensor)
        self._write(step=0, summary=Summary(value=[value]))

    def _write(self, **fields: Any) -> None:
        self._records.write(self._event(wall_time=time.time(), **fields).SerializeToString())

    def close(self) -> None:
        """Close the file."""
        self._file.close()
