"""A teacher's accuracy in plain words, reported before anything else."""

from tpkd.competence.record import Competence
from tpkd.report.numbers import count, share


def competence_sentences(found: Competence, examples: str = "examples") -> list[str]:
    """The teacher's accuracy, and a warning if there is reason for one.

    Args:
        found: the counts.
        examples: the word for the examples, such as "test samples".

    Example:
        >>> competence_sentences(Competence(200, 0.1, 0.9, False, False, None, None), "test samples")
        ['The teacher is right on 90.0 % of 200 test samples.']
    """
    right = f"The teacher is right on {share(found.teacher_accuracy)} of {count(found.examples)} {examples}"
    if found.student_accuracy is None:
        sentences = [f"{right}."]
    else:
        beside = (
            f"the student on {share(found.student_accuracy)}; both give the same answer on {share(found.agreement)}"
        )
        sentences = [f"{right}, {beside}."]
    if found.near_chance:
        sentences.append(_near_chance(found, examples))
    elif found.student_accuracy is not None and found.teacher_accuracy < found.student_accuracy:
        sentences.append(
            "The teacher is right less often than the student: imitating it whole teaches its mistakes too."
        )
    return sentences


def _near_chance(found: Competence, examples: str) -> str:
    guess = f"always answering the most frequent class ({share(found.chance)})"
    if found.too_few:
        few = (
            f"{count(found.examples)} {examples} are too few to tell whether the teacher knows anything of their labels"
        )
        return f"Warning: {few}: even all right cannot be told from {guess}."
    return (
        f"Warning: the teacher seems to know nothing of these labels: that is not clearly more often than {guess}. If "
        "it was trained for them, the order of its classes or of its rows is not that of the labels. Do not rely on "
        "anything that is said about its knowledge."
    )
