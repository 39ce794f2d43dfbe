"""The page of a diagnosis: one HTML file that needs nothing else, and whose every number is one of the record's."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tpkd.diagnosis.charts import student_charts, trend_charts
from tpkd.diagnosis.file_names import short_names
from tpkd.diagnosis.marks import SIGNS, bound_of, kind_of
from tpkd.diagnosis.next_steps import next_steps
from tpkd.diagnosis.reading import CAVEAT, read_student, read_trend, record_notes
from tpkd.diagnosis.record import DiagnosisRecord, StudentDiagnosis
from tpkd.report.html import content_markup, page_template
from tpkd.report.tables import Traced

if TYPE_CHECKING:
    from markupsafe import Markup

PAGE_CLASSES = 500
"""Rows of the class table on a page; the record has them all."""

FIELDS = {
    "confidence": ("probability", "Student's confidence", "its probability of the correct class"),
    "teacher_confidence": ("probability", "Teacher's confidence", "its probability of the correct class"),
    "label_loss": ("nats", "Label loss", "cross-entropy of the student"),
    "imitation_loss": ("nats", "Teacher KL", "what full imitation minimises"),
    "conditional_loss": ("nats", "Conditional loss", "what is left to learn about the incorrect classes"),
    "transfer_cost": ("nats", "Transfer cost", "rise in log-odds that pays for learning all of it (theorem 2)"),
    "min_confidence": ("probability", "Least confidence", "where all of it is learned and no margin is lower"),
    "compensation": ("probability", "Compensation", "push on the correct class in the next protected step"),
    "retention": ("share", "Retention", "share of conditional descent that protection keeps (theorem 3)"),
    "update_cosine": ("probability", "Update cosine", "how well the protected step serves both goals (theorem 4)"),
}
"""Format, name and meaning of every mean in the table of means."""


def diagnosis_page(record: DiagnosisRecord) -> str:
    """The page of a diagnosis as HTML text: the last student in full, and the trend when there are several.

    Every number carries the path of its value in the record (`data-path`) and that value unrounded (`value`).
    Needs the extra `report` (jinja2, matplotlib).
    """
    seen, last = Traced(record).students, len(record.students) - 1
    student, files = record.students[last], [student.file for student in record.students]
    # The classes with most left to learn come first; without JavaScript this is the order that remains.
    order = sorted(student.classes, key=lambda state: -(state.conditional_loss or 0.0))[:PAGE_CLASSES]
    return page_template("diagnosis.html").render(
        record=record,
        student=student,
        students=seen,
        seen=seen[last],
        short=dict(zip(files, short_names(files), strict=True)).get,
        notes=record_notes(record),
        reading=read_student(student),
        next_steps=next_steps(record),
        marked=_marked(student),
        trend=read_trend(record) if last else None,
        caveat=CAVEAT,
        charts=student_charts(student),
        trend_charts=trend_charts(record) if last else (),
        fields=FIELDS,
        classes=order,
    )


def _marked(student: StudentDiagnosis) -> Callable[[str, Traced, str], "Markup"]:
    """How a template writes a number whose worth may have to be said: by its name in `bounds`, with its format."""

    def write(name: str, traced: Traced, kind: str) -> "Markup":
        bound = bound_of(student, name)
        number = traced(kind_of(bound, kind))
        # The sign is bare text, and does not break from its number: tables sort a cell by its only element.
        return content_markup(number if number.value is None or not SIGNS[bound] else (f"{SIGNS[bound]}\xa0", number))

    return write
