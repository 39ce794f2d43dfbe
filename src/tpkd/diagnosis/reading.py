"""What a diagnosis means, in plain words: it describes outputs and promises nothing."""

from collections.abc import Mapping
from itertools import pairwise

from tpkd.competence.reading import competence_sentences
from tpkd.diagnosis.record import DiagnosisRecord, FrontierCurve, StudentDiagnosis
from tpkd.report.numbers import count, nats, share

CAVEAT = (
    "These numbers describe the outputs in these files: what could still be learned, and at what price. "
    "They do not promise accuracy."
)


def read_student(student: StudentDiagnosis) -> list[str]:
    """The reading of one student, a sentence or two for each question."""
    if student.decomposition.conditional_share is None:
        # Every other sentence would speak of a share of nothing.
        return [
            f"The student's outputs equal the teacher's on your {count(student.examples)} examples: there is nothing "
            "left to imitate, and nothing to protect from it."
        ]
    return [
        *(competence_sentences(student.competence) if student.competence else ()),
        _blocked_sentence(student),
        _left_sentence(student),
        _decomposition_sentence(student),
        _frontier_sentence(student.frontier),
        f"The next protected step would keep {share(student.all['retention'])} of the first-order conditional descent "
        f"on average; no example can fall below {share(student.retention_bound)} with {student.num_classes} classes.",
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
    where = f"{left} there on average" if student.blocked_examples else f"Over all examples, {left} on average"
    return (
        f"{where}; exact transfer would cost {nats(means['transfer_cost'])} nats of log-odds on average, and give "
        "back nothing."
    )


def _decomposition_sentence(student: StudentDiagnosis) -> str:
    parts = student.decomposition
    return (
        f"Of the {nats(student.all['imitation_loss'])} nats between student and teacher, {nats(parts.confidence)} are "
        f"a difference in confidence and {nats(parts.conditional)} ({share(parts.conditional_share)}) are knowledge "
        "about the incorrect classes."
    )


def half_budget(curve: FrontierCurve) -> float | None:
    """The budget that leaves half of what a zero budget leaves; None where there is none, or it is beyond the curve.

    Older records have the curve alone. It is convex, so that the chord between two of its points lies above it, and
    where the chord reaches half is an upper bound.

    Example:
        >>> half_budget(FrontierCurve(10, (0.0, 1.0, 2.0), (0.8, 0.5, 0.3)))
        1.5
    """
    if curve.half_budget is not None or curve.values[0] <= 0:
        return curve.half_budget
    half = curve.values[0] / 2
    for (low, above), (high, below) in pairwise(zip(curve.budgets, curve.values, strict=True)):
        if below <= half:
            return low + (high - low) * (above - half) / (above - below)
    return None


def half_price(curve: FrontierCurve) -> str:
    """What half of the knowledge costs, in words.

    Example:
        >>> half_price(FrontierCurve(10, (0.0, 1.0), (0.8, 0.5))), half_price(FrontierCurve(9, (0.0,), (0.8,), 0.34712))
        ('more than 1 nat', '0.347 nats')
    """
    half = half_budget(curve)
    if half is None:
        return f"more than {curve.budgets[-1]:g} nat{'' if curve.budgets[-1] == 1 else 's'}"
    return f"{'at most ' if curve.half_budget is None else ''}{nats(half)} nats"


def _frontier_sentence(curve: FrontierCurve) -> str:
    if curve.values[0] <= 0:
        return "No log-odds are needed: the student has learned what the teacher knows about the incorrect classes."
    return (
        f"Half of all conditional knowledge can be had for {half_price(curve)} of log-odds per example "
        f"(over a uniform sample of {count(curve.sample)})."
    )
