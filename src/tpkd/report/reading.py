"""What a diagnosis means, in plain words: it describes outputs and promises nothing."""

from collections.abc import Mapping

from tpkd.records import DiagnosisRecord, FrontierCurve, StudentDiagnosis
from tpkd.report.numbers import count, nats, share

CAVEAT = (
    "These numbers describe the outputs in these files: what could still be learned, and at what price. "
    "They do not promise accuracy."
)


def read_student(student: StudentDiagnosis) -> list[str]:
    """The reading of one student, a sentence or two for each question."""
    return [
        _blocked_sentence(student),
        _left_sentence(student),
        _decomposition_sentence(student),
        _frontier_sentence(student.frontier),
        f"The next protected step would keep {share(student.all['retention'])} of the first-order conditional descent "
        f"in the mean; no example can fall below {share(student.retention_bound)} with {student.num_classes} classes.",
    ]


def read_trend(record: DiagnosisRecord) -> str:
    """How the first and the last student differ."""
    first, last = record.students[0], record.students[-1]
    left = [nats(student.blocked["conditional_loss"]) for student in (first, last)]
    label = [nats(student.all["label_loss"]) for student in (first, last)]
    return (
        f"From the first student to the last, the blocked share goes from {share(first.blocked_share)} to "
        f"{share(last.blocked_share)}, the mean conditional loss on blocked examples from {left[0]} to {left[1]} nats "
        f"and the label loss over all examples from {label[0]} to {label[1]} nats."
    )


def _blocked_sentence(student: StudentDiagnosis) -> str:
    if not student.blocked_examples:
        return (
            f"Full imitation is blocked on none of your {count(student.examples)} examples (n = 0): on each of them "
            "some step towards the whole teacher gives back no margin."
        )
    return (
        f"Full imitation is blocked on {share(student.blocked_share)} of your examples (n = "
        f"{count(student.blocked_examples)} of {count(student.examples)}): there, any step closer to the whole teacher "
        "gives back a margin that the student has won."
    )


def _left_sentence(student: StudentDiagnosis) -> str:
    means: Mapping[str, float | None] = student.blocked if student.blocked_examples else student.all
    left = f"{nats(means['conditional_loss'])} nats of conditional knowledge are left"
    where = f"{left} there in the mean" if student.blocked_examples else f"Over all examples, {left} in the mean"
    return (
        f"{where}; exact transfer would cost {nats(means['transfer_cost'])} nats of log-odds in the mean, and give "
        "back nothing."
    )


def _decomposition_sentence(student: StudentDiagnosis) -> str:
    parts = student.decomposition
    if parts.conditional_share is None:
        return "The student's outputs equal the teacher's: there is nothing left to imitate."
    return (
        f"Of the {nats(student.all['imitation_loss'])} nats between student and teacher, {nats(parts.confidence)} are "
        f"a difference in confidence and {nats(parts.conditional)} ({share(parts.conditional_share)}) are knowledge "
        "about the incorrect classes."
    )


def half_budget(curve: FrontierCurve) -> float | None:
    """The least budget on the curve that leaves at most half of what a zero budget leaves; None if none does.

    Example:
        >>> half_budget(FrontierCurve(10, (0.0, 1.0, 2.0), (0.8, 0.5, 0.1)))
        2.0
    """
    points = zip(curve.budgets, curve.values, strict=True)
    return next((budget for budget, value in points if 2 * value <= curve.values[0]), None)


def _frontier_sentence(curve: FrontierCurve) -> str:
    if curve.values[0] <= 0:
        return "No log-odds are needed: the student has learned what the teacher knows about the incorrect classes."
    half = half_budget(curve)
    price = f"more than {curve.budgets[-1]:g} nats" if half is None else f"{half:g} nat{'' if half == 1 else 's'}"
    return (
        f"Half of all conditional knowledge can be had for {price} of log-odds an example "
        f"(over a uniform sample of {count(curve.sample)})."
    )
