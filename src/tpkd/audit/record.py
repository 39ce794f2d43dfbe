"""What an audit found over all examples; those of single examples are in the chunks beside it and in its table."""

from dataclasses import dataclass

from tpkd.record import Record


@dataclass(frozen=True)
class AuditedStudent:
    """One student over all examples; losses, prices and margins in nats."""

    name: str
    """Short, and different from those of the others."""
    file: str
    right: int
    """Examples whose most probable class is the label."""
    blocked: int
    same_answer: int
    """Examples on which student and teacher give the same class."""
    teacher_only: int
    """Examples on which the teacher is right and the student wrong."""
    student_only: int
    conditional_loss: float
    transfer_cost: float
    imitation_loss: float
    margin: float
    """Mean of the least margin: by how much the label is ahead of its nearest competitor in log-probability."""


@dataclass(frozen=True)
class ClassFlips:
    """The examples of one class under two students."""

    label: int
    examples: int
    kept: int
    """Right before and after."""
    lost: int
    won: int
    missed: int
    """Wrong before and after."""
    margin_change: float | None
    """Mean change of the least margin; None without examples."""


@dataclass(frozen=True)
class Flips:
    """From one student to another on the same examples: answers lost and won, margins gained and lost."""

    before: int
    """Number of the student, from 0, as the next."""
    after: int
    kept: int
    lost: int
    won: int
    missed_alike: int
    """Wrong before and after, with the same answer."""
    missed_differently: int
    accuracy_change: float
    accuracy_low: float
    """Interval of the change over test samples, as the next."""
    accuracy_high: float
    p_value: float
    """McNemar's exact test: how probable so uneven a split of lost and won answers is if both are equally likely."""
    margin_change: float
    """Mean change of the least margin."""
    margin_change_low: float | None
    """Interval of that mean over test samples; None for a single example."""
    margin_change_high: float | None
    least_margins_lowered: int
    """Examples whose least margin is lower after than before."""
    margins_lowered: float
    """Share of all margins, one for each example and incorrect class, that are lower after than before."""
    classes: tuple[ClassFlips, ...]


@dataclass(frozen=True)
class AuditRecord(Record):
    """An audit: what was compared, every student over all examples, and every pair of students."""

    teacher: str
    labels: str
    data: str | None
    """What the gallery shows of an example comes from here; None where it shows its name alone."""
    kind: str
    """What it shows: "image", "text" or "none"."""
    examples: int
    left_out: int
    """Rows whose labels are to be ignored."""
    class_names: tuple[str, ...]
    beta: float
    chunk_rows: int
    teacher_right: int
    students: tuple[AuditedStudent, ...]
    flips: tuple[Flips, ...]
    notes: tuple[str, ...] = ()
