"""Records that age: those of results/ are of the first schema, and stay readable when a field is added."""

import json
from pathlib import Path

import pytest

from tpkd.compare.record import Cell, ComparisonRecord

FIRST = Path(__file__).parents[2] / "results/cpu-vision/comparison.json"


@pytest.fixture
def data():
    return json.loads(FIRST.read_text())


def test_a_record_of_the_first_schema_may_lack_a_field_with_a_default(data):
    assert data["schema"] == ComparisonRecord.schema == 1
    whole = ComparisonRecord.from_dict(data)
    for cell in data["cells"]:
        del cell["curves"]
    older = ComparisonRecord.from_dict(data)
    assert {cell.curves for cell in older.cells} == {Cell("ce", 42, "ce", "missing", None).curves} == {None}
    assert older.methods == whole.methods


def test_a_field_without_a_default_is_missed_by_name(data):
    del data["cells"][3]["status"]
    with pytest.raises(ValueError, match=r"cells\[3\]: missing \['status'\]"):
        ComparisonRecord.from_dict(data)


def test_a_record_that_is_read_and_written_keeps_its_bytes():
    again = ComparisonRecord.from_json(FIRST.read_text()).to_json()
    assert again == FIRST.read_text(), "declare new fields of records with tpkd.record.added"
