"""A diagnosis on the terminal: a short table and its reading."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tpkd.diagnosis.file_names import short_names
from tpkd.diagnosis.marks import in_ascii, signed
from tpkd.diagnosis.next_steps import next_steps
from tpkd.diagnosis.reading import CAVEAT, read_student, read_trend, record_notes
from tpkd.diagnosis.record import DiagnosisRecord
from tpkd.report.numbers import share

if TYPE_CHECKING:
    from rich.table import Table


def diagnosis_table(record: DiagnosisRecord, *, ascii_only: bool = False) -> "Table":
    """One row per student; `ascii_only` for a terminal that has no other characters."""
    from rich.markup import escape
    from rich.table import Table

    write = in_ascii if ascii_only else str
    over = "examples that may be blocked" if record.truncation else "blocked examples"
    caption = f"means in nats; left: conditional loss, cost: transfer cost, both over the {over}"
    found = record.students[-1].competence
    if found is not None:
        caption += f"; right: share of right answers, of the teacher {share(found.teacher_accuracy)}"
    table = Table(caption=caption)
    table.add_column("student", overflow="fold")
    for heading in ("blocked", "n", "left", "cost", "label\nloss", "teacher\nKL", *(["right"] if found else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    names = short_names([student.file for student in record.students])
    for name, student in zip(names, record.students, strict=True):
        cells = (
            signed(student, "blocked", "share", student.blocked_share),
            signed(student, "blocked", "count", student.blocked_examples),
            signed(student, "conditional_loss", "nats", student.blocked["conditional_loss"]),
            signed(student, "transfer_cost", "nats", student.blocked["transfer_cost"]),
            signed(student, "label_loss", "nats", student.all["label_loss"]),
            signed(student, "imitation_loss", "nats", student.all["imitation_loss"]),
            *([share(student.competence.student_accuracy)] if found and student.competence else []),
        )
        table.add_row(escape(name), *map(write, cells))
    return table


def diagnosis_reading(record: DiagnosisRecord) -> Iterator[str]:
    """What to know first, the trend of several students, the last one, what next, and what all this does not say."""
    yield from record_notes(record)
    if len(record.students) > 1:
        yield read_trend(record)
    yield from read_student(record.students[-1])
    first, *others = next_steps(record)
    yield f"What next: {first}"
    yield from others
    yield CAVEAT
