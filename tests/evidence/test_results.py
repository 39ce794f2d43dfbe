"""The committed results: the report gives their tables again, byte for byte, and no study breaks a theorem."""

import shutil
from pathlib import Path

import pytest

from tpkd.compare.record import ComparisonRecord
from tpkd.compare.reporting import read_records, write_report
from tpkd.compare.run import RECORD_NAME
from tpkd.training.directory import read_result

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
COMPARISONS = sorted(path.parent for path in RESULTS.glob(f"*/{RECORD_NAME}"))

_of_every_comparison = pytest.mark.parametrize("directory", COMPARISONS, ids=lambda path: path.name)


@_of_every_comparison
def test_the_report_gives_every_committed_file_again(directory, tmp_path):
    again = tmp_path / directory.name
    shutil.copytree(directory, again, ignore=shutil.ignore_patterns("tables", "report.html", "*.safetensors"))
    written = {path.relative_to(again): path.read_bytes() for path in write_report(again)}
    kept = {path.relative_to(directory): path.read_bytes() for path in (directory / "tables").iterdir()}
    kept[Path("report.html")] = (directory / "report.html").read_bytes()
    assert sorted(written) == sorted(kept), f"write them anew: tpkd report results/{directory.name}"
    assert [str(path) for path in kept if written[path] != kept[path]] == []


@_of_every_comparison
def test_every_cell_is_kept_as_the_record_says(directory):
    record = ComparisonRecord.from_json((directory / RECORD_NAME).read_text())
    assert record.teacher is not None
    for cell in record.cells:
        assert cell.status != "failed", cell.problem
        result = read_result(directory / cell.directory)
        if cell.status == "missing":
            assert result is None
            continue
        assert (result.accuracy, result.student_fingerprint) == (cell.accuracy, cell.student_fingerprint)
        assert result.teacher_fingerprint == record.teacher.fingerprint
        assert result.data_fingerprint == record.data.fingerprint


@pytest.mark.parametrize(("directory", "cells"), [(RESULTS / "cpu-vision", 42), (RESULTS / "cpu-text", 54)])
def test_the_grids_are_complete(directory, cells):
    record = ComparisonRecord.from_json((directory / RECORD_NAME).read_text())
    assert [cell.status for cell in record.cells] == ["finished"] * cells


@_of_every_comparison
def test_no_study_breaks_a_theorem(directory):
    broken = [
        f"{name}: {check.name}"
        for name, study in read_records(directory).studies.items()
        for check in study.checks
        if check.theorem and check.violations
    ]
    assert broken == []
