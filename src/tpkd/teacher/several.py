"""Several teachers at once: each answers, and "the teacher" is the average of their probabilities."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import nn

from tpkd.config.loading import ConfigError
from tpkd.config.schema import RunConfig, TeacherConfig, WeightedTeacherConfig
from tpkd.geometry.averaging import average_probabilities, shares_of
from tpkd.teacher.cache.recipe import CacheRecipe
from tpkd.teacher.teacher import Answers, Ids, Teacher

_KEYS = "|".join(TeacherConfig.model_fields)


class SeveralTeachers(Teacher):
    """Teachers that all answer, with their weights.

    Its logits are the log of the averaged probabilities, which is what a monitor, a diagnosis or an accuracy is about.
    Objectives average the single answers as each of them needs it, see `Objective.average_teachers`.

    Example:
        >>> from tpkd.teacher.teacher import OnlineTeacher
        >>> both = SeveralTeachers([OnlineTeacher(nn.Linear(2, 3)), OnlineTeacher(nn.Linear(2, 3))], [2.0, 1.0])
        >>> answers = both.answer(torch.zeros(4, 2))
        >>> len(answers.members), answers.weights, answers.logits.shape
        (2, (0.6666666666666666, 0.3333333333333333), torch.Size([4, 3]))
    """

    def __init__(self, members: Sequence[Teacher], weights: Sequence[float] | None = None) -> None:
        """Take two teachers or more of the same classes, none of them truncated; weights are equal by default."""
        if len(members) < 2:
            raise ValueError(f"members: expected at least two teachers, got {len(members)}")
        for number, member in enumerate(members):
            if member.top_k is not None:
                raise ValueError(f"members[{number}]: expected all classes, got the top {member.top_k} of each answer")
        self.members, self.weights = tuple(members), tuple(shares_of(weights, len(members)))

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the fingerprints of all members and their weights, in order."""
        parts = [[member.fingerprint, weight] for member, weight in zip(self.members, self.weights, strict=True)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    @property
    def about(self) -> nn.Module | CacheRecipe:
        """The first member's, because all have the same classes."""
        return self.members[0].about

    def to(self, device: torch.device) -> Self:
        """All members answer on this device."""
        for member in self.members:
            member.to(device)
        return self

    def answer(
        self, inputs: Any = None, sample_ids: Ids = None, view_ids: Ids = None, *, with_layers: bool = False
    ) -> Answers:
        """The answers of all members and their average; there are no layer features."""
        return self.join([member.answer(inputs, sample_ids, view_ids) for member in self.members])

    def join(self, answers: Sequence[Answers]) -> Answers:
        """One answer from those of the members."""
        logits = tuple(answer.all_logits("teachers") for answer in answers)
        return Answers(average_probabilities(logits, weights=self.weights), members=logits, weights=self.weights)


def each_alone(config: RunConfig) -> tuple[tuple[str, RunConfig], ...]:
    """The run with each of its teachers alone, under the key of that teacher; nothing where there is no teacher.

    Example:
        >>> from tpkd.config.loading import resolve_config
        >>> run = {"output": "runs/a", "data": {"name": "digits"}, "student": {"model": "builtin:mlp"}, "epochs": 1}
        >>> run |= {"objective": "ce", "optimizer": {"name": "sgd", "learning_rate": 0.1}}
        >>> config = resolve_config(run | {"teachers": [{"cache": "a"}, {"cache": "b", "weight": 2}]})
        >>> [(key, alone.teacher.cache, alone.teachers) for key, alone in each_alone(config)]
        [('teachers.0', 'a', ()), ('teachers.1', 'b', ())]
    """
    return tuple(
        (key, config.model_copy(update={"teacher": _alone(teacher), "teachers": ()}))
        for key, teacher in config.named_teachers
    )


def _alone(teacher: TeacherConfig) -> TeacherConfig:
    return teacher.alone if isinstance(teacher, WeightedTeacherConfig) else teacher


@contextmanager
def keyed_as(key: str) -> Iterator[None]:
    """Errors about the teacher of a run of `each_alone` as errors about the key that it has in the file.

    Example:
        >>> with keyed_as("teachers.1"):
        ...     raise ConfigError("teacher.weights: missing; set teacher.untrained")
        Traceback (most recent call last):
            ...
        tpkd.config.loading.ConfigError: teachers.1.weights: missing; set teachers.1.untrained
    """
    try:
        yield
    except ConfigError as error:
        # Keys alone: a path such as runs/teacher.safetensors is left as it is.
        raise ConfigError(re.sub(rf"(?<![\w./-])teacher(?=:|\.(?:{_KEYS})\b)", key, str(error))) from error
