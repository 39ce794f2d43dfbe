"""The page of a diagnosis: one HTML file that needs nothing else, and whose every number is one of the record's."""

from tpkd.diagnosis.charts import student_charts, trend_charts
from tpkd.diagnosis.file_names import short_names
from tpkd.diagnosis.reading import CAVEAT, read_student, read_trend
from tpkd.diagnosis.record import DiagnosisRecord
from tpkd.report.html import page_template
from tpkd.report.tables import Traced

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
        reading=read_student(student),
        trend=read_trend(record) if last else None,
        caveat=CAVEAT,
        charts=student_charts(student),
        trend_charts=trend_charts(record) if last else (),
        fields=FIELDS,
        classes=order,
    )
