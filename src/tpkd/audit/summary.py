"""From the columns of all examples to the record of an audit."""

from collections.abc import Iterator, Mapping

import numpy as np

from tpkd.audit.collecting import Collected
from tpkd.audit.flips import compare_answers
from tpkd.audit.record import AuditedStudent, Flips


def student_summary(
    name: str, file: str, shared: Mapping[str, np.ndarray], columns: Mapping[str, np.ndarray]
) -> AuditedStudent:
    """One student over all examples.

    Example:
        >>> whole, single = {"label": np.array([0, 1]), "teacher_answer": np.array([0, 1])}, np.zeros(2)
        >>> means = ("conditional_loss", "transfer_cost", "imitation_loss", "margin")
        >>> columns = {"answer": np.array([0, 2]), "blocked": single, **{mean: single for mean in means}}
        >>> found = student_summary("kd", "kd.npy", whole, columns)
        >>> found.right, found.teacher_only
        (1, 1)
    """
    right, taught = columns["answer"] == shared["label"], shared["teacher_answer"] == shared["label"]
    return AuditedStudent(
        name=name,
        file=file,
        right=int(right.sum()),
        blocked=int(columns["blocked"].sum()),
        same_answer=int((columns["answer"] == shared["teacher_answer"]).sum()),
        teacher_only=int((taught & ~right).sum()),
        student_only=int((right & ~taught).sum()),
        conditional_loss=float(columns["conditional_loss"].mean()),
        transfer_cost=float(columns["transfer_cost"].mean()),
        imitation_loss=float(columns["imitation_loss"].mean()),
        margin=float(columns["margin"].mean()),
    )


def all_flips(collected: Collected, num_classes: int) -> Iterator[Flips]:
    """Every pair of students, the earlier one first."""
    labels = collected.shared["label"].astype(np.int64)
    for (before, after), lowered in collected.margins_lowered.items():
        pair = collected.students[before], collected.students[after]
        yield compare_answers(
            (before, after),
            labels,
            (pair[0]["answer"].astype(np.int64), pair[1]["answer"].astype(np.int64)),
            (pair[0]["margin"], pair[1]["margin"]),
            margins_lowered=lowered,
            num_classes=num_classes,
        )
