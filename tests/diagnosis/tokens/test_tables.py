"""The tables of a language model's diagnosis."""

from diagnosis.tokens.records import record
from tpkd.diagnosis.tokens.tables import group_tables
from tpkd.report.tables import text


def test_rows_are_groups_with_tokens():
    tables = group_tables(record())
    assert [table.name for table in tables] == ["by-position", "by-frequency", "by-confidence"]
    rows = [tuple(map(text, row)) for row in tables[2].rows]
    assert rows[0] == ("below 1 %", "10", "2.500", "2.000", "50.0 %", "≤ 12.5 %", "≥ 0.500", "≥ 3.000")
    assert [row[0] for row in rows] == ["below 1 %", "1 to 10 %"]
