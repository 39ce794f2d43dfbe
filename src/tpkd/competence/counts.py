"""Checks that a teacher is better than chance, before compute is spent on its outputs."""

import math

import torch
from torch import Tensor

from tpkd.competence.record import Competence

LEVEL = 0.01
"""Maximum probability that a guessing teacher passes as competent."""


def near_chance(correct: int, examples: int, chance: float, *, level: float = LEVEL) -> bool:
    """Whether this many correct answers could be luck.

    Guessing is right with probability c on each of n examples, independently. The number of right answers is then
    binomial, and for k > n c the probability of k or more is at most pmf(k) / (1 - (n - k) c / ((k + 1) (1 - c))): each
    further term is smaller than the last by that factor or more. An accuracy is near chance unless it lies above c and
    this bound at or below `level`. So guessing is taken for knowledge with probability at most `level`, at any n, and
    a teacher that knows something is doubted only where there are too few examples to tell.

    Args:
        correct: right answers.
        examples: n.
        chance: c, what guessing gives: the share of the most frequent label, which no other fixed answer exceeds.
        level: the probability of luck that is accepted.

    Example:
        >>> near_chance(12, 100, 0.1), near_chance(30, 100, 0.1), near_chance(1, 1, 0.1)
        (True, False, True)
    """
    if examples < 1:
        raise ValueError(f"examples: expected at least 1, got {examples}")
    if correct <= chance * examples:
        return True
    if chance <= 0:
        return False
    log_choose = math.lgamma(examples + 1) - math.lgamma(correct + 1) - math.lgamma(examples - correct + 1)
    log_pmf = log_choose + correct * math.log(chance) + (examples - correct) * math.log1p(-chance)
    factor = (examples - correct) * chance / ((correct + 1) * (1 - chance))
    return log_pmf - math.log1p(-factor) > math.log(level)


class AnswerCounts:
    """Counts of correct and matching answers over a stream of blocks.

    Example:
        >>> counts = AnswerCounts(3)
        >>> counts.add(torch.tensor([[2.0, 0.0, 1.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 2]))
        >>> counts.finish().teacher_accuracy
        0.5
    """

    def __init__(self, num_classes: int) -> None:
        """Start with empty counts."""
        self._labels = torch.zeros(num_classes, dtype=torch.long)
        self._teacher, self._student, self._equal, self._compared = 0, 0, 0, 0

    def add(self, teacher_logits: Tensor, labels: Tensor, student_logits: Tensor | None = None) -> None:
        """Count a block; pass student logits for every block or for none."""
        student = None if student_logits is None else student_logits.argmax(-1)
        self.add_classes(teacher_logits.argmax(-1), labels, student)

    def add_classes(self, teacher: Tensor, labels: Tensor, student: Tensor | None = None) -> None:
        """Count a block of which the most probable classes `(N,)` are known; the student's for every block or for none.

        Example:
            >>> counts = AnswerCounts(3)
            >>> counts.add_classes(torch.tensor([0, 1]), torch.tensor([0, 2]))
            >>> counts.finish().teacher_accuracy
            0.5
        """
        self._labels += torch.bincount(labels, minlength=len(self._labels))
        self._teacher += int((teacher == labels).sum())
        if student is not None:
            self._student += int((student == labels).sum())
            self._equal += int((student == teacher).sum())
            self._compared += len(labels)

    def finish(self) -> Competence:
        """The counts as shares of the examples."""
        examples = int(self._labels.sum())
        chance = int(self._labels.max()) / examples
        return Competence(
            examples=examples,
            chance=chance,
            teacher_accuracy=self._teacher / examples,
            near_chance=near_chance(self._teacher, examples, chance),
            too_few=near_chance(examples, examples, chance),
            student_accuracy=self._student / examples if self._compared else None,
            agreement=self._equal / examples if self._compared else None,
        )
