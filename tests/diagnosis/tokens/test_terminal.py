"""A language model's diagnosis on the terminal."""

from rich.console import Console

from diagnosis.tokens.records import record
from tpkd.diagnosis.tokens.terminal import tokens_tables


def test_a_table_for_each_way_to_group_tokens(capsys):
    tables = tokens_tables(record())
    assert [table.row_count for table in tables] == [1, 1, 2]
    Console(width=140).print(*tables)
    assert "≥ 0.500" in capsys.readouterr().out
