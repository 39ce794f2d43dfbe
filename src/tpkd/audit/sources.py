"""What an audit is of: files of logits, or a run or a grid, which knows its own files and data."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tpkd.compare.cells import kept_files
from tpkd.compare.record import ComparisonRecord
from tpkd.compare.run import read_comparison
from tpkd.compare.start import LABELS_NAME, TEACHER_NAME
from tpkd.config.loading import load_config
from tpkd.data.configured import load_data
from tpkd.data.dataset import Dataset
from tpkd.data.loading import load_dataset
from tpkd.errors import InputError, did_you_mean, some
from tpkd.training.directory import CONFIG_NAME, TEST_LOGITS_NAME

USUAL = ("ce", "kd", "tpkd")
"""Objectives whose students an audit of a grid compares unless others are asked for."""
MOST_STUDENTS = 8
"""Every pair of students is compared."""


@dataclass(frozen=True)
class Sources:
    """Files of the same examples, and the samples they are of."""

    students: tuple[Path, ...]
    teacher: Path
    labels: Path
    dataset: Dataset | None = None
    class_names: Path | Sequence[str] | None = None
    ids: Path | None = None
    base: Path | None = None
    """Where the files are shown from, so that a grid in another directory gives the same page."""

    def shown(self, path: Path) -> str:
        """How the page calls a file.

        Example:
            >>> Sources((), Path("grid/teacher.npy"), Path("labels.npy"), base=Path("grid")).shown(Path("grid/a.npy"))
            'a.npy'
        """
        return str(path.relative_to(self.base) if self.base and path.is_relative_to(self.base) else path)


def find_sources(
    students: Sequence[Path],
    teacher: Path | None = None,
    labels: Path | None = None,
    *,
    data: str | None = None,
    split: str = "test",
    cells: Sequence[str] = (),
    class_names: Path | None = None,
    ids: Path | None = None,
) -> Sources:
    """The files that were named, or those of the run or grid that was.

    Args:
        students: files of logits; or one directory that `tpkd compare` or `tpkd train` made.
        teacher: its logits; of a grid, its own by default.
        labels: of a run or grid, its own by default.
        data: a data set by name, as `data.name` of a configuration; "none" to show no samples of a run or grid.
        split: the part of the data set.
        cells: of a grid, such as `tpkd-42`; by default those of the first seed with the usual objectives.
        class_names: a file of names.
        ids: a file with the names of the examples.

    Raises:
        InputError: says which file or option is missing.
    """
    dataset = None if data in (None, "none") else load_dataset(data, split)
    if len(students) == 1 and students[0].is_dir():
        return _of_directory(students[0], teacher, labels, data, dataset, cells, class_names, ids)
    if cells:
        raise InputError(f"--cells: expected the directory of a grid, found {students[0]}")
    names = class_names or (dataset.class_names if dataset is not None else None)
    files = _needed("--teacher", teacher), _needed("--labels", labels)
    return Sources(_not_too_many(tuple(students)), *files, dataset, names, ids)


def _needed(option: str, path: Path | None) -> Path:
    if path is None:
        raise InputError(f"{option}: expected a file beside files of logits, found none")
    return path


def _of_directory(
    directory: Path,
    teacher: Path | None,
    labels: Path | None,
    data: str | None,
    dataset: Dataset | None,
    cells: Sequence[str],
    class_names: Path | None,
    ids: Path | None,
) -> Sources:
    record = read_comparison(directory)
    chosen: tuple[Path, ...]
    if record is None:
        run, chosen = directory, (_logits_of_run(directory),)
        labels = labels or chosen[0]
    else:
        names = _chosen_cells(directory, record, cells)
        run, chosen = directory / names[0][1], tuple(_logits_of_cell(directory, *name) for name in names)
        labels = labels or directory / LABELS_NAME
        teacher = teacher or directory / TEACHER_NAME
    if teacher is None or not teacher.exists():
        raise InputError(f"--teacher: expected logits of the teacher on the test part of {directory}, found none")
    if data is None:
        dataset = load_data(load_config(run / CONFIG_NAME), "test")
    known = class_names or (dataset.class_names if dataset is not None else None)
    return Sources(_not_too_many(chosen), teacher, labels, dataset, known, ids, directory)


def _chosen_cells(directory: Path, record: ComparisonRecord, asked: Sequence[str]) -> list[tuple[str, str]]:
    """Name and run directory of each cell that is compared."""
    finished = {cell.name: cell for cell in record.cells if cell.status == "finished"}
    for name in asked:
        if name not in finished:
            raise InputError(f"--cells: expected finished cells, found {name!r}{did_you_mean(name, finished)}")
    if not asked:
        seed = record.seeds[0]
        usual = [name for objective in USUAL if (name := f"{objective}-{seed}") in finished]
        asked = usual or list(finished)[: len(USUAL)]
    if not asked:
        raise InputError(f"{directory}: expected a grid with a finished cell, found none")
    return [(name, finished[name].directory) for name in asked]


def _logits_of_cell(directory: Path, name: str, run: str) -> Path:
    kept = kept_files(directory, name)[0]
    for path in (kept, directory / run / TEST_LOGITS_NAME):
        if path.exists():
            return path
    raise InputError(f"{kept}: expected the test logits of {name}, found none; `tpkd compare` makes them again")


def _logits_of_run(directory: Path) -> Path:
    path = directory / TEST_LOGITS_NAME
    if not path.exists():
        raise InputError(f"{directory}: expected a grid or a finished run, found no {TEST_LOGITS_NAME}")
    return path


def _not_too_many(students: tuple[Path, ...]) -> tuple[Path, ...]:
    if len(students) > MOST_STUDENTS:
        found = some([str(path) for path in students], 3)
        raise InputError(f"students: expected at most {MOST_STUDENTS}, found {len(students)}: {found}")
    return students
