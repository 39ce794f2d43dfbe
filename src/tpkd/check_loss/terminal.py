"""What was found about a loss, on the terminal: a table, a reading, and how to see each failure."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tpkd.check_loss.record import LossCheckRecord

if TYPE_CHECKING:
    from rich.table import Table

STYLES = {"pass": "green", "fail": "bold red", "note": "yellow", "n/a": "dim"}


def loss_table(record: LossCheckRecord) -> "Table":
    """One row a property."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(record.loss))
    table.add_column("property", no_wrap=True)
    table.add_column("result", no_wrap=True)
    table.add_column("finding", overflow="fold")
    for finding in record.findings:
        table.add_row(finding.name, Text(finding.outcome, STYLES[finding.outcome]), Text(finding.finding))
    return table


def loss_reading(record: LossCheckRecord) -> Iterator[str]:
    """How the loss was called, how many findings there are of each kind, and the command that shows each failure."""
    yield f"called as {record.call} with student s, teacher t and labels y"
    counts = Counter(finding.outcome for finding in record.findings)
    yield ", ".join(f"{counts[outcome]} {outcome}" for outcome in STYLES)
    for failure in record.failures:
        yield f"to see `{failure.name}` fail:"
        yield f"{failure.reproduction}"
