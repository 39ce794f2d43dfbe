"""The records of a report are those of one directory, and belong together."""

import shutil
from pathlib import Path

import pytest

from tpkd.compare.reporting import read_records, write_report
from tpkd.errors import InputError

RESULTS = Path(__file__).parents[2] / "results"


def test_studies_of_the_directory_are_found():
    found = read_records(RESULTS / "mechanism-vision")
    assert set(found.studies) == {"blocking", "exact_head", "certificates", "continuation"}
    assert all(record.source.objective == "ce" for record in found.studies.values())


def test_a_study_of_another_run_is_refused(tmp_path):
    shutil.copytree(RESULTS / "mechanism-vision", tmp_path / "grid")
    path = next((tmp_path / "grid").rglob("studies/blocking.json"))
    path.write_text(path.read_text().replace('"objective": "ce"', '"objective": "kd"', 1))
    with pytest.raises(InputError, match=r"blocking\.json: source\.objective: expected ce .*, found kd"):
        read_records(tmp_path / "grid")


def test_a_directory_of_something_else_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"expected a comparison or a run, found neither comparison\.json nor"):
        write_report(tmp_path)
