"""One pass over the examples of all students: chunks are written on the way, short columns are kept."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from tpkd.audit.details import SCALARS, detail_columns, index_columns, teacher_columns
from tpkd.audit.flips import MarginCount
from tpkd.audit.packing import ChunkWriter, packed_column, write_script
from tpkd.audit.samples import Samples
from tpkd.diagnosis.block import SplitBlock

CHUNK_ROWS = 64
"""Examples in a file of the folder: few enough that a view of scattered examples loads little beside them."""


class Columns:
    """Columns of arrays that grow block by block."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._parts: dict[str, list[np.ndarray]] = defaultdict(list)

    def add(self, columns: dict[str, np.ndarray]) -> None:
        """Add the rows of a block, the same columns every time."""
        for name, values in columns.items():
            self._parts[name].append(values)

    def finish(self) -> dict[str, np.ndarray]:
        """Every column over all rows."""
        return {name: np.concatenate(parts) for name, parts in self._parts.items()}


@dataclass(frozen=True)
class Collected:
    """What is known about all examples at the end of the pass."""

    rows: np.ndarray
    """Their numbers in the files of logits."""
    shared: dict[str, np.ndarray]
    """Columns that do not depend on the student: `label`, `teacher_answer`, `teacher_confidence`, `teacher_margin`."""
    students: tuple[dict[str, np.ndarray], ...]
    """Columns of each student: those of the index, and the scalars in double precision under their own names."""
    margins_lowered: dict[tuple[int, int], float]


class Collector:
    """Takes blocks of the same examples under every student."""

    def __init__(self, folder: Path, samples: Samples, num_students: int, *, beta: float) -> None:
        """Write chunks into a folder."""
        self._samples, self._white, self._beta = samples, samples.brightest, beta
        self._inputs = ChunkWriter(folder, "inputs", CHUNK_ROWS)
        self._details = [ChunkWriter(folder, f"details-{number}", CHUNK_ROWS) for number in range(num_students)]
        self._rows, self._shared = Columns(), Columns()
        self._students = [Columns() for _ in range(num_students)]
        self._lowered = {pair: MarginCount() for pair in combinations(range(num_students), 2)}

    def add(self, blocks: list[SplitBlock]) -> None:
        """Add the same examples under every student, in order."""
        rows = blocks[0].rows.numpy()
        shown = self._samples.shown(rows, self._white)
        self._inputs.add({"shown": shown, "row": rows.astype(np.uint32)})
        for number, block in enumerate(blocks):
            details = detail_columns(block, beta=self._beta)
            self._details[number].add(details)
            scalars = {name: details["scalars"][:, place] for place, name in enumerate(SCALARS)}
            if not number:
                self._rows.add({"row": rows})
                teacher = {name: scalars[name] for name in ("teacher_confidence", "teacher_margin")}
                self._shared.add(teacher_columns(block) | teacher)
            self._students[number].add(index_columns(block) | scalars)
        for (before, after), count in self._lowered.items():
            count.add(blocks[before].student, blocks[after].student, blocks[before].labels)

    def finish(self) -> Collected:
        """Write the last chunks; everything else as arrays."""
        for writer in (self._inputs, *self._details):
            writer.close()
        students = tuple(columns.finish() for columns in self._students)
        lowered = {pair: count.share for pair, count in self._lowered.items()}
        return Collected(self._rows.finish()["row"], self._shared.finish(), students, lowered)


def write_index(folder: Path, collected: Collected, names: tuple[str, ...] | None) -> None:
    """Write what the page sorts and filters by: one file for all students and one for each."""
    shared = {name: collected.shared[name] for name in ("label", "teacher_answer")}
    shared["teacher_confidence"] = collected.shared["teacher_confidence"].astype(np.float32)
    ids = None if names is None else [names[row] for row in collected.rows.tolist()]
    packed = {name: packed_column(values) for name, values in shared.items()}
    write_script(folder, "index", packed | {"row": packed_column(collected.rows.astype(np.uint32)), "id": ids})
    for number, columns in enumerate(collected.students):
        whole = {name: columns[name] for name in ("answer", "blocked")}
        single = ("confidence", "conditional_loss", "transfer_cost", "imitation_loss", "margin")
        whole |= {name: columns[name].astype(np.float32) for name in single}
        write_script(folder, f"index-{number}", {name: packed_column(values) for name, values in whole.items()})
