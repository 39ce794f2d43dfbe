"""Records of studies in a report: each belongs to the run it is kept in, and runs are not mixed without a word."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from tpkd.compare.grid import plan_grid
from tpkd.compare.record import ComparisonRecord
from tpkd.compare.reporting import read_records
from tpkd.compare.run import RECORD_NAME
from tpkd.demo.run import CONFIGS
from tpkd.errors import InputError
from tpkd.mechanism.studies import study_path
from tpkd.mechanism.tables import mechanism_tables

KEPT = Path(__file__).parents[2] / "results" / "mechanism-vision"


@pytest.fixture
def directory(tmp_path):
    copy = tmp_path / "grid"
    (copy / "ce-42").mkdir(parents=True)
    shutil.copy(KEPT / RECORD_NAME, copy)
    shutil.copy(KEPT / "ce-42" / "result.json", copy / "ce-42")
    shutil.copytree(KEPT / "ce-42" / "studies", copy / "ce-42" / "studies")
    return copy


def change(path, **source):
    plain = json.loads(path.read_text())
    plain["source"] |= source
    path.write_text(json.dumps(plain))


def test_the_studies_of_one_run_are_shown_without_its_name(directory):
    records = read_records(directory)
    assert len(records.studies) == 4
    assert not any(
        "seed" in note for table in mechanism_tables(records.studies, records.paper_domain, str) for note in table.notes
    )


def test_studies_of_two_runs_are_shown_with_their_names(directory):
    record = ComparisonRecord.from_json((directory / RECORD_NAME).read_text())
    other = dataclasses.replace(record.cells[0], seed=43, directory="ce-43")
    both = dataclasses.replace(record, cells=(*record.cells, other), seeds=(42, 43))
    (directory / RECORD_NAME).write_text(both.to_json())
    moved = study_path("certificates", directory / "ce-43")
    moved.parent.mkdir(parents=True)
    study_path("certificates", directory / "ce-42").rename(moved)
    change(moved, seed=43)
    notes = {table.name: table.notes for table in mechanism_tables(read_records(directory).studies, None, str.upper)}
    assert any("CE, seed 43" in note for note in notes["certificate"])
    for name in ("states", "exact", "continuation"):
        assert any("CE, seed 42" in note for note in notes[name]), name


@pytest.mark.parametrize(
    ("field", "value"),
    [("seed", 43), ("objective", "kd"), ("teacher_fingerprint", "0" * 64), ("data_fingerprint", "0" * 64)],
)
def test_the_study_of_something_else_is_refused_by_its_file(directory, field, value):
    path = study_path("blocking", directory / "ce-42")
    change(path, **{field: value})
    with pytest.raises(InputError, match=rf"blocking\.json: source\.{field}: expected .*, found "):
        read_records(directory)


def test_a_seed_that_repeats_is_refused():
    with pytest.raises(InputError, match="seeds: expected every seed once, found 42 twice"):
        plan_grid(CONFIGS / "demo.yaml", seeds=[42, 43, 42])
