"""What to do after a diagnosis, in plain words: it follows from the numbers alone, and promises nothing."""

import math

from tpkd.competence.record import Competence
from tpkd.diagnosis.marks import worded
from tpkd.diagnosis.record import DiagnosisRecord, StudentDiagnosis
from tpkd.report.numbers import count, nats, share

NOTHING_LEFT = 0.05
"""Share of the probability among incorrect classes below which what would move is called nothing.

By Pinsker's inequality a conditional loss of c nats moves at most sqrt(c / 2) of it: 0.005 nats here.
"""
LEVEL = 0.01
"""Probability of luck that is accepted, as where a teacher is compared with chance."""

_COMPARE = (
    "Whether it is worth learning, only training can tell: compare ce, kd and tpkd on held-out data (tpkd compare "
    "CONFIG --methods ce,kd,tpkd, or tpkd_loss in your own loop)."
)


def next_steps(record: DiagnosisRecord) -> list[str]:
    """Two to four sentences about the last student.

    What decides, in this order: whether the teacher's answers can be told from guessing (the test of
    `tpkd.competence`, at the 1 % level); whether anything is left to learn (Pinsker's inequality, see `NOTHING_LEFT`);
    whether full imitation is blocked anywhere, and whether most of what is left is there. A sentence is added where the
    student is right more often than the teacher by more than luck (Hoeffding's inequality, at the 1 % level).
    """
    student = record.students[-1]
    found = student.competence
    if found is not None and found.too_few:
        return _too_few(found)
    if found is not None and found.near_chance:
        return _near_chance(found)
    sentences = _nothing_left(student) if _is_nothing_left(student) else _something_left(student)
    return sentences if found is None or not clearly_worse(found) else [*sentences, _worse(found)]


def most_that_moves(conditional_loss: float) -> float:
    """The largest mean share of the probability among incorrect classes that a mean conditional loss can stand for.

    Pinsker's inequality bounds the total variation of each example by sqrt(KL / 2), and the root is concave.

    Example:
        >>> most_that_moves(0.005), most_that_moves(8.0)
        (0.05, 1.0)
    """
    return min(1.0, math.sqrt(conditional_loss / 2))


def clearly_worse(found: Competence) -> bool:
    """Whether the student is right more often than the teacher by more than luck explains.

    Only examples on which the answers differ count, m of them. If the teacher were at least as good, an excess of s
    right answers or more would have a probability of at most exp(-s^2 / 2m) (Hoeffding).

    Example:
        >>> clearly_worse(Competence(1000, 0.1, 0.80, False, False, 0.95, 0.8))
        True
        >>> clearly_worse(Competence(1000, 0.1, 0.94, False, False, 0.95, 0.8))
        False
    """
    if found.student_accuracy is None or found.agreement is None:
        return False
    excess = found.examples * (found.student_accuracy - found.teacher_accuracy)
    differing = found.examples * (1 - found.agreement)
    return excess > 0 and excess**2 > 2 * differing * math.log(1 / LEVEL)


def _too_few(found: Competence) -> list[str]:
    return [
        f"Diagnose more examples first: with {count(found.examples)}, and {share(found.chance)} of them in one class, "
        "not even a teacher that is always right could be told from guessing that class (1 % level).",
        "Until then, do not decide anything by these numbers.",
    ]


def _near_chance(found: Competence) -> list[str]:
    return [
        f"Do not distil from this teacher yet: it is near chance, right on {share(found.teacher_accuracy)} of "
        f"{count(found.examples)} examples where always answering the most frequent class is on {share(found.chance)}; "
        "the difference may be luck (1 % level).",
        "First check that its rows and its columns are in the order of the labels.",
        "If they are, train on the labels alone (ce) or take another teacher.",
    ]


def _is_nothing_left(student: StudentDiagnosis) -> bool:
    return most_that_moves(student.all["conditional_loss"]) < NOTHING_LEFT


def _nothing_left(student: StudentDiagnosis) -> list[str]:
    left = student.all["conditional_loss"]
    if student.bounds is not None:
        return [
            f"What this teacher kept leaves next to nothing to learn: at least {nats(left)} nats of conditional loss "
            "on average, and more only where it did not keep classes.",
            "Diagnose it with more classes kept before you decide whether it can teach anything else.",
        ]
    return [
        f"Nothing is left to learn from this teacher about the incorrect classes: {nats(left)} nats of conditional "
        f"loss move at most {share(most_that_moves(left))} of their probability on average (Pinsker's inequality; "
        f"below {100 * NOTHING_LEFT:.0f} % we call it nothing).",
        "Train on the labels alone (ce), or take a teacher that knows more: what a distillation loss could still "
        f"reduce are {nats(student.decomposition.confidence)} nats of difference in confidence.",
    ]


def _something_left(student: StudentDiagnosis) -> list[str]:
    left = worded(student, "conditional_loss", "nats", student.all["conditional_loss"])
    if not student.blocked_examples:
        return [
            "Ordinary distillation (kd) is not yet in conflict with the labels: none of "
            f"{count(student.known_examples)} examples is blocked, and {left} nats of conditional loss are left on "
            "average.",
            "Diagnose later students too: examples become blocked when a student gives every incorrect class less than "
            "the teacher does, as it grows sure of its labels.",
            _COMPARE,
        ]
    blocked = worded(student, "blocked", "share", student.blocked_share)
    if student.bounds is not None:
        return [
            f"TPKD can still teach: {left} nats of conditional loss are left on average, and full imitation is blocked "
            f"on {blocked} of the examples.",
            "How much of it is on blocked examples, only a teacher that kept more classes can tell.",
            _COMPARE,
        ]
    there = student.blocked_share * (student.blocked["conditional_loss"] or 0.0) / student.all["conditional_loss"]
    numbers = f"{share(there)} of the conditional loss that is left ({left} nats on average)"
    if there >= 0.5:
        return [
            f"TPKD can still teach what full imitation cannot without giving back margins: {numbers} is on the "
            f"{blocked} of examples that are blocked.",
            _COMPARE,
        ]
    return [
        f"TPKD can still teach, most of it where full imitation is not blocked: {numbers} is on the {blocked} of "
        "examples that are.",
        "On the others, some step towards the whole teacher gives back no margin, so that ordinary distillation (kd) "
        "may do as well there.",
        _COMPARE,
    ]


def _worse(found: Competence) -> str:
    return (
        f"The student is right on {share(found.student_accuracy)} and the teacher on {share(found.teacher_accuracy)} "
        f"of {count(found.examples)} examples, a difference beyond luck (1 % level): if you expected a better teacher, "
        "check that the two files were not exchanged."
    )
