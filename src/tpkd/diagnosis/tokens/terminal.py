"""A language model's diagnosis on the terminal."""

from typing import TYPE_CHECKING

from tpkd.diagnosis.tokens.record import TokenDiagnosis
from tpkd.diagnosis.tokens.tables import group_tables
from tpkd.report.tables import text

if TYPE_CHECKING:
    from rich.table import Table


def tokens_tables(record: TokenDiagnosis) -> "list[Table]":
    """One table for each way to group tokens."""
    from rich.table import Table

    found = []
    for item in group_tables(record):
        table = Table(caption=item.caption)
        for column in item.columns:
            table.add_column(column.title, justify="left" if column.text else "right")
        for row in item.rows:
            table.add_row(*map(text, row))
        found.append(table)
    return found
