"""From the classes of a teacher to those of a student, by their names."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from tpkd.errors import InputError, some


@dataclass(frozen=True)
class ClassMap:
    """Which teacher class answers for each student class: the same names, a subset of them, or renamed ones.

    Teacher classes without a student class are dropped; what remains is the teacher's conditional distribution over
    the student's classes, because that is what a softmax over a subset of logits computes.

    Example:
        >>> class_map = ClassMap.from_names(("cat", "dog", "hound"), ("dog", "tomcat"), rename={"cat": "tomcat"})
        >>> class_map.apply(torch.tensor([[1.0, 2.0, 3.0]]))
        tensor([[2., 1.]])
        >>> ClassMap.from_names(("cat", "dog"), ("cat", "mouse"))
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: class map: no teacher class for the student's 'mouse'
    """

    teacher_names: tuple[str, ...]
    student_names: tuple[str, ...]
    teacher_classes: tuple[int, ...]
    """For each student class the index of its teacher class."""

    @classmethod
    def from_names(
        cls, teacher_names: Sequence[str], student_names: Sequence[str], rename: Mapping[str, str] | None = None
    ) -> "ClassMap":
        """Match classes by name, after renaming teacher classes by `rename` (teacher name -> student name).

        Raises:
            InputError: a name occurs twice, a renaming starts or ends at a class that does not exist, two teacher
                classes claim one student class, or a student class has no teacher class.
        """
        for owner, names in (("teacher", teacher_names), ("student", student_names)):
            repeated = [name for name, count in Counter(names).items() if count > 1]
            _refuse(repeated, f"the {owner} has two classes named")
        rename = rename or {}
        _refuse([name for name in rename if name not in teacher_names], "rename: the teacher has no class")
        _refuse([name for name in rename.values() if name not in student_names], "rename: the student has no class")
        index: dict[str, int] = {}
        for position, name in enumerate(teacher_names):
            target = rename.get(name, name)
            _refuse([target] if target in index else [], "two teacher classes for the student's")
            index[target] = position
        _refuse([name for name in student_names if name not in index], "no teacher class for the student's")
        return cls(tuple(teacher_names), tuple(student_names), tuple(index[name] for name in student_names))

    def apply(self, teacher_logits: Float[Tensor, "*batch teacher_classes"]) -> Float[Tensor, "*batch student_classes"]:
        """The teacher's logits of the student's classes, in the student's order."""
        if teacher_logits.shape[-1] != len(self.teacher_names):
            raise ValueError(
                f"teacher_logits: expected {len(self.teacher_names)} classes, got {teacher_logits.shape[-1]}"
            )
        if self.is_identity:
            return teacher_logits
        chosen = torch.tensor(self.teacher_classes, device=teacher_logits.device)
        return teacher_logits.index_select(-1, chosen)

    @property
    def is_identity(self) -> bool:
        """Whether every class answers for the class in its own place."""
        return self.teacher_classes == tuple(range(len(self.teacher_names)))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as they are written into a cache's manifest."""
        return {
            "teacher_names": list(self.teacher_names),
            "student_names": list(self.student_names),
            "teacher_classes": list(self.teacher_classes),
        }


def _refuse(names: list[str], problem: str) -> None:
    if names:
        raise InputError(f"class map: {problem} {some([repr(name) for name in names], 1)}")
