"""`tpkd report`: find the records of a comparison or a run, and write their page and tables."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from tpkd.config import load_config
from tpkd.files import InputError, read_text, reading
from tpkd.records import (
    BlockingRecord,
    CertificatesRecord,
    ContinuationRecord,
    DiagnosisRecord,
    ExactHeadRecord,
    IllustrationsRecord,
    Record,
    StudyRecord,
)
from tpkd.records.comparison import ComparisonRecord
from tpkd.report.bundle import ReportRecords
from tpkd.studies.comparison import read_comparison
from tpkd.studies.comparison_cells import collect
from tpkd.studies.grid import STUDENTS_NAME, Grid, GridCell
from tpkd.studies.mechanism import study_path
from tpkd.training import read_result
from tpkd.training.directory import CONFIG_NAME, write_text

FIGURES_NAME = "figures/figures.json"

AnyRecord = TypeVar("AnyRecord", bound=Record)
AnyStudy = TypeVar("AnyStudy", bound=StudyRecord)


def write_report(directory: Path) -> list[Path]:
    """Write the page and the tables of a comparison or a run into its directory; returns what was written.

    Raises:
        InputError: the directory holds neither, or a record in it is damaged.
    """
    from tpkd.report.comparison_page import report_files

    written = []
    for name, text in report_files(read_records(directory)).items():
        written.append(directory / name)
        write_text(written[-1], text)
    return written


def read_records(directory: Path) -> ReportRecords:
    """All records of a directory that a report shows.

    The studies and figures are taken from the first run that has them, the runs in the order of the tables.

    Raises:
        InputError: a record is damaged, or a study is not one of the run that it is kept in.
    """
    comparison = read_comparison(directory) or _single_run(directory)
    return ReportRecords(
        comparison=comparison,
        blocking=_study(BlockingRecord, "blocking", directory, comparison),
        exact_head=_study(ExactHeadRecord, "exact-head", directory, comparison),
        certificates=_study(CertificatesRecord, "certificates", directory, comparison),
        continuation=_study(ContinuationRecord, "continuation", directory, comparison),
        diagnosis=_first(DiagnosisRecord, _diagnoses(directory, comparison)),
        illustrations=_first(IllustrationsRecord, [directory / FIGURES_NAME]),
    )


def _single_run(directory: Path) -> ComparisonRecord:
    """A run as a comparison of one cell."""
    if not (directory / CONFIG_NAME).exists():
        raise InputError(
            f"{directory}: expected a comparison or a run, found neither comparison.json nor {CONFIG_NAME}"
        )
    config = load_config(directory / CONFIG_NAME, [f"output={directory}"])
    name = config.objective.name
    cell = GridCell(name, config.seed, config)
    grid = Grid(directory.resolve().name, directory, (name,), (config.seed,), (cell,), config)
    return collect(grid, None, {})


def _diagnoses(directory: Path, comparison: ComparisonRecord) -> list[Path]:
    """The diagnosis of a final student: TPKD's if there is one."""
    cells = sorted(comparison.cells, key=lambda cell: cell.objective != "tpkd")
    return [directory / STUDENTS_NAME / f"{cell.objective}-{cell.seed}.json" for cell in cells]


def _study(kind: type[AnyStudy], name: str, directory: Path, comparison: ComparisonRecord) -> AnyStudy | None:
    for cell in comparison.cells:
        path = study_path(name, directory / cell.directory)
        record = _first(kind, [path])
        if record is None:
            continue
        expected: dict[str, Any] = {"objective": cell.objective, "seed": cell.seed}
        result = read_result(directory / cell.directory)
        if result is not None:
            expected |= {key: getattr(result, key) for key in ("data_fingerprint", "teacher_fingerprint")}
        for key, value in expected.items():
            if (found := getattr(record.source, key)) != value:
                raise InputError(f"{path}: source.{key}: expected {value} as the run has it, found {found}")
        return record
    return None


def _first(kind: type[AnyRecord], paths: Iterable[Path]) -> AnyRecord | None:
    for path in paths:
        if path.exists():
            with reading(path):
                return kind.from_json(read_text(path))
    return None
