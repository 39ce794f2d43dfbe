"""A diagnosis on the terminal: a short table and its reading."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tpkd.diagnosis.file_names import short_names
from tpkd.diagnosis.reading import CAVEAT, read_student, read_trend
from tpkd.diagnosis.record import DiagnosisRecord
from tpkd.report.numbers import count, nats, share

if TYPE_CHECKING:
    from rich.table import Table


def diagnosis_table(record: DiagnosisRecord) -> "Table":
    """One row per student."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(caption="means in nats; left: conditional loss, cost: transfer cost, both over the blocked examples")
    table.add_column("student", overflow="fold")
    for heading in ("blocked", "n", "left", "cost", "label loss", "teacher KL"):
        table.add_column(heading, justify="right", no_wrap=True)
    names = short_names([student.file for student in record.students])
    for name, student in zip(names, record.students, strict=True):
        table.add_row(
            escape(name),
            share(student.blocked_share),
            count(student.blocked_examples),
            nats(student.blocked["conditional_loss"]),
            nats(student.blocked["transfer_cost"]),
            nats(student.all["label_loss"]),
            nats(student.all["imitation_loss"]),
        )
    return table


def diagnosis_reading(record: DiagnosisRecord) -> Iterator[str]:
    """The reading of the last student, of the trend when there are several, and what it does not say."""
    if len(record.students) > 1:
        yield read_trend(record)
    yield from read_student(record.students[-1])
    yield CAVEAT
