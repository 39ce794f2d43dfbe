"""What a diagnosis means, in plain words: it describes outputs and promises nothing."""

from collections.abc import Mapping
from itertools import pairwise

from tpkd.competence.reading import competence_sentences
from tpkd.diagnosis.marks import worded
from tpkd.diagnosis.record import DiagnosisRecord, FrontierCurve, SoftLabels, StudentDiagnosis, Truncation, WithoutLabel
from tpkd.report.numbers import count, nats, share

CAVEAT = (
    "These numbers describe the outputs in these files: what could still be learned, and at what price. "
    "They do not promise accuracy."
)


def record_notes(record: DiagnosisRecord) -> list[str]:
    """What one has to know before the numbers: nothing, for a whole teacher, classes as labels and the paper's step."""
    notes = []
    if record.ignored:
        one = record.ignored == 1
        rows = f"{count(record.ignored)} row{'' if one else 's'} with the label -100 {'is' if one else 'are'} left out"
        notes.append(f"{rows}; {count(record.students[0].examples)} examples enter the numbers.")
    if record.one_hot_labels:
        notes.append("The labels are one-hot rows: the class of an example is the place of its 1.")
    if record.truncation:
        notes.append(_truncation_note(record.truncation, record.students[0].num_classes))
    if record.soft_labels:
        notes.append(_soft_labels_note(record.soft_labels))
    if (record.beta, record.temperature) != (0.5, 1.0):
        notes.append(
            "Compensation, retention and update cosine are those of a step with beta = "
            f"{record.beta:g} and temperature {record.temperature:g}; no other number depends on them."
        )
    return notes


def _truncation_note(truncation: Truncation, num_classes: int) -> str:
    note = (
        f"This teacher kept its top {count(truncation.k)} of {count(num_classes)} classes: numbers marked ≤ are upper "
        f"bounds, ≥ lower bounds (up to the stored {truncation.dtype} precision), and those marked ~ speak of the "
        "teacher completed by the student."
    )
    if truncation.rest_stored:
        return note
    return (
        f"{note} It does not give the total of the other classes (rest_log_probs): where that total is small, one "
        "minus the others is mostly rounding, and the bounds are only as good as that."
    )


def _soft_labels_note(labels: SoftLabels) -> str:
    return (
        "The labels are probabilities: all classes that a label gives a share are its correct classes, here up to "
        f"{count(labels.most_correct)} of them. Confidence is their total, and the label loss cannot fall below the "
        f"labels' own entropy, {nats(labels.entropy)} nats on average. Tables by class, and whether an answer is "
        "right, go by the class with the largest share."
    )


def read_student(student: StudentDiagnosis) -> list[str]:
    """The reading of one student, a sentence or two for each question."""
    if student.decomposition.conditional_share is None and student.bounds is not None:
        return [
            f"On your {count(student.known_examples)} examples the student's outputs agree with everything that the "
            "teacher kept: what may be left to imitate is among the classes that it did not keep."
        ]
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
        _frontier_sentence(student),
        f"The next protected step would keep {share(student.all['retention'])} of the first-order conditional descent "
        f"{'towards the completed teacher ' if student.bounds else ''}on average; no example can fall below "
        f"{share(student.retention_bound)} with {student.num_classes} classes{_and_these_labels(student)}.",
        *(_without_label_sentences(student.without_label) if student.without_label else ()),
    ]


def _and_these_labels(student: StudentDiagnosis) -> str:
    return "" if student.decomposition.inside is None else " and these labels"


def read_trend(record: DiagnosisRecord) -> str:
    """How the first and the last student differ."""
    first, last = record.students[0], record.students[-1]
    blocked = [worded(student, "blocked", "share", student.blocked_share) for student in (first, last)]
    key = "conditional_loss"
    left = [worded(student, key, "nats", student.blocked[key]) for student in (first, last)]
    label = [nats(student.all["label_loss"]) for student in (first, last)]
    return (
        f"From the first student to the last, the blocked share goes from {blocked[0]} to {blocked[1]}, the mean "
        f"conditional loss on {_blocked_ones(first)} from {left[0]} to {left[1]} nats "
        f"and the label loss over all examples from {label[0]} to {label[1]} nats."
    )


def _blocked_ones(student: StudentDiagnosis) -> str:
    return "examples that may be blocked" if student.bounds else "blocked examples"


def _blocked_sentence(student: StudentDiagnosis) -> str:
    if not student.blocked_examples:
        return (
            f"Full imitation is blocked on none of your {count(student.known_examples)} examples (n = 0): on each of "
            "them some step towards the whole teacher gives back no margin."
        )
    if student.bounds:
        lacking = student.known_examples < student.examples
        whose = "the examples whose label's log-probability is known" if lacking else "your examples"
        return (
            f"Full imitation is blocked on {worded(student, 'blocked', 'share', student.blocked_share)} of {whose} "
            f"(n at most {count(student.blocked_examples)} of {count(student.known_examples)}): on all "
            "others, some step towards the whole teacher gives back no margin."
        )
    return (
        f"Full imitation is blocked on {share(student.blocked_share)} of your examples (n = "
        f"{count(student.blocked_examples)} of {count(student.examples)}): there, any step closer to the whole teacher "
        "gives back a margin that the student has won."
    )


def _left_sentence(student: StudentDiagnosis) -> str:
    means: Mapping[str, float | None] = student.blocked if student.blocked_examples else student.all
    if student.bounds:
        return _bounded_left_sentence(student, means)
    left = f"{nats(means['conditional_loss'])} nats of conditional knowledge are left"
    where = f"{left} there on average" if student.blocked_examples else f"Over all examples, {left} on average"
    return (
        f"{where}; exact transfer would cost {nats(means['transfer_cost'])} nats of log-odds on average, and give "
        "back nothing."
    )


def _bounded_left_sentence(student: StudentDiagnosis, means: Mapping[str, float | None]) -> str:
    left, cost = (worded(student, name, "nats", means[name]) for name in ("conditional_loss", "transfer_cost"))
    where = "On the examples that may be blocked" if student.blocked_examples else "Over all examples"
    return (
        f"{where}, {left} nats of conditional knowledge are left on average; exact transfer would cost {cost} nats of "
        "log-odds on average, and give back nothing."
    )


def _decomposition_sentence(student: StudentDiagnosis) -> str:
    parts = student.decomposition
    total = worded(student, "imitation_loss", "nats", student.all["imitation_loss"])
    conditional = worded(student, "decomposition.conditional", "nats", parts.conditional)
    portion = worded(student, "decomposition.conditional_share", "share", parts.conditional_share)
    whole = total if student.bounds else f"the {total}"
    others = f"Of {whole} nats between student and teacher, {nats(parts.confidence)} are a difference in confidence"
    if parts.inside is not None:
        others = f"{others}, {nats(parts.inside)} are differences among the correct classes,"
    return f"{others} and {conditional} ({portion}) are knowledge about the incorrect classes."


def _without_label_sentences(without: WithoutLabel) -> list[str]:
    if not without.examples:
        return []
    return [
        f"On {count(without.examples)} more examples the teacher did not keep the label's log-probability. They enter "
        f"no bound; among the kept classes alone, {nats(without.conditional_loss)} nats are left there on average, for "
        f"{nats(without.transfer_cost)} nats of log-odds."
    ]


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


def _frontier_sentence(student: StudentDiagnosis) -> str:
    curve = student.frontier
    if curve.values[0] <= 0:
        known = "what was kept of the teacher says" if student.bounds else "the teacher knows"
        return f"No log-odds are needed: the student has learned what {known} about the incorrect classes."
    whose = "of the completed teacher " if student.bounds else ""
    return (
        f"Half of all conditional knowledge {whose}can be had for {half_price(curve)} of log-odds per example "
        f"(over a uniform sample of {count(curve.sample)})."
    )
