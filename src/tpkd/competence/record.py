"""How often a teacher is right, beside guessing and beside its student."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Competence:
    """Shares of some examples: where the largest logit is the label's, and where both networks' largest is the same."""

    examples: int
    chance: float
    """The share of the most frequent label: what always answering it gives."""
    teacher_accuracy: float
    near_chance: bool
    """Whether the teacher's accuracy cannot be told from that share, by the rule of `tpkd.competence.counts`."""
    too_few: bool
    """Whether not even an accuracy of 1 could be told from it: few examples, or hardly more than one class."""
    student_accuracy: float | None
    """None where there is no student to compare with, as for agreement."""
    agreement: float | None
