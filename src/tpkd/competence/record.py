"""A teacher's accuracy compared with guessing and with its student."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Competence:
    """Accuracies and agreement as shares of the examples."""

    examples: int
    chance: float
    """Share of the most frequent label: the accuracy of always predicting it."""
    teacher_accuracy: float
    near_chance: bool
    """Whether the teacher's accuracy cannot be told from that share, by the rule of `tpkd.competence.counts`."""
    too_few: bool
    """Whether not even an accuracy of 1 could be told from it: few examples, or hardly more than one class."""
    student_accuracy: float | None
    """None where there is no student to compare with, as for agreement."""
    agreement: float | None
