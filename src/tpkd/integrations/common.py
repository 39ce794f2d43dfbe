"""What the drop-ins of all hosts share.

- `choose_objective`: an objective by name and settings or as it is; one whose `needs` the host cannot meet is refused.
- `build_batch`: the `Batch` of an objective from logits with classes last, as hosts give them.
- `move_logits`: what a teacher said, on the student's device, all classes or its largest.
- `total_loss`: what an objective makes of it, as the one loss that hosts differentiate.
- `choose_teacher`: a network that no wrapper, optimiser or checkpoint sees, or the same answers from a teacher cache.
- `MonitorMeans`: blocked share, conditional loss, compensation, retention and more as plain numbers, over many batches.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from tpkd.errors import InputError
from tpkd.geometry.correct import MIN_INCORRECT, normalised_probabilities
from tpkd.geometry.inputs import class_indices
from tpkd.geometry.top_k import TopK
from tpkd.integrations.labels import is_soft
from tpkd.objectives.base import Batch, Objective
from tpkd.objectives.reduction import IGNORE_INDEX
from tpkd.objectives.registry import create
from tpkd.teacher.cache.manifest import MANIFEST_NAME
from tpkd.teacher.cache.read import TeacherCache
from tpkd.teacher.cache.tokens import TokenCache
from tpkd.teacher.teacher import CachedTeacher, OnlineTeacher, Teacher
from tpkd.theory.monitor import MIN_CLASSES, observed_values

LOGITS_AND_LABELS = frozenset({"labels", "teacher_logits"})
"""What every host can give to an objective; some also count epochs."""

TeacherLike = nn.Module | Teacher | TeacherCache | TokenCache | str | Path
"""What a user calls a teacher: a network, a cache of samples or texts, its directory, or a `Teacher` of their own."""


def choose_objective(
    objective: str | Objective,
    settings: Mapping[str, Any] | None = None,
    *,
    host: str,
    has_teacher: bool = True,
    gives: frozenset[str] = LOGITS_AND_LABELS,
) -> Objective:
    """The objective of a run, refused here if this host cannot serve it.

    Args:
        objective: a name of `tpkd.objectives.names()`, or an objective.
        settings: its settings, where it is given by name.
        host: the training system, for messages.
        has_teacher: whether there is a source of teacher logits.
        gives: which of an objective's `needs` the host meets.

    Raises:
        InputError: the host cannot give what the objective needs, or there is no teacher; what is missing is named.

    Example:
        >>> choose_objective("tpkd", {"beta": 0.25}, host="a plain loop")
        TPKD(beta=0.25, temperature=1.0)
        >>> choose_objective("dp-u", host="Lightning")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: objective 'dp-u' needs initial_logits, which Lightning cannot give: use `tpkd train` ...
    """
    if isinstance(objective, str):
        objective = create(objective, **(settings or {}))
    elif not isinstance(objective, Objective):
        raise InputError(
            f"objective: expected a name of tpkd.objectives.names() or an Objective, found {type(objective).__name__}"
        )
    elif settings:
        raise InputError(f"settings: expected none beside an objective that has its own, got {', '.join(settings)}")
    missing = sorted(objective.needs - gives)
    if missing or not objective.separable:
        what = ", ".join(missing) or "the whole batch at once"
        without = ", set warmup_epochs=0" if missing == ["epoch"] else ""
        raise InputError(
            f"objective {objective.name!r} needs {what}, which {host} cannot give: use `tpkd train` for it{without}, "
            "or an objective that needs logits and labels alone"
        )
    if "teacher_logits" in objective.needs and not has_teacher:
        raise InputError(f"teacher: expected a model or a teacher cache, because objective {objective.name!r} asks it")
    return objective


def choose_teacher(
    teacher: TeacherLike | None, student: nn.Module, objective: Objective | None = None
) -> Teacher | None:
    """The teacher of a run: a network, frozen in place, or a cache, open or by its directory; None where there is none.

    Args:
        teacher: what the user calls a teacher.
        student: with which it may share no parameter.
        objective: what is trained; a truncated cache is refused here, before the first step, if that needs all classes.

    Raises:
        InputError: the network shares a parameter with the student, the cache is damaged or truncated beyond what the
            objective takes, or it is neither.

    Example:
        >>> choose_teacher(nn.Linear(4, 3), student=nn.Linear(4, 3)).answer(torch.zeros(2, 4)).logits.shape
        torch.Size([2, 3])
    """
    if teacher is None:
        return None
    if isinstance(teacher, TokenCache):
        teacher = teacher.cache
    if isinstance(teacher, Teacher):
        chosen = teacher
    else:
        chosen = OnlineTeacher(teacher, student=student) if isinstance(teacher, nn.Module) else _open_cache(teacher)
    asked = objective is not None and "teacher_logits" in objective.needs
    if objective is not None and asked and chosen.top_k is not None and not objective.takes_top_k:
        remedy = f"{objective.top_k_condition}, or " if objective.top_k_condition else ""
        raise InputError(
            f"teacher: objective {objective.name!r} needs all classes, found a cache that kept the {chosen.top_k} "
            f"largest of each row: {remedy}build it without top_k, or use an objective that takes it, such as tpkd"
        )
    return chosen


def _open_cache(cache: TeacherCache | str | Path) -> CachedTeacher:
    """A teacher cache; a name that is none may be meant as that of a network."""
    try:
        return CachedTeacher(cache)
    except InputError as error:
        if not isinstance(cache, str | Path) or (Path(cache) / MANIFEST_NAME).exists():
            raise
        raise InputError(
            f"{error}; to learn from a network, load it first, for a language model with "
            f"teacher=AutoModelForCausalLM.from_pretrained({str(cache)!r})"
        ) from error


def move_logits(logits: Tensor | TopK, device: torch.device) -> Tensor | TopK:
    """What a teacher said, on a device.

    Example:
        >>> move_logits(TopK(torch.zeros(2, 1), torch.tensor([[0], [2]])), torch.device("meta")).indices.device
        device(type='meta')
    """
    return logits.map(lambda values: values.to(device)) if isinstance(logits, TopK) else logits.to(device)


def build_batch(
    student_logits: Float[Tensor, "*positions K"],
    labels: Shaped[Tensor, "..."] | None,
    teacher_logits: Float[Tensor, "*positions K"] | TopK | None = None,
    *,
    num_items: int | Tensor | None = None,
    epoch: int | None = None,
    num_epochs: int | None = None,
) -> Batch:
    """What an objective takes, from logits with classes last: `(N, K)` of samples or `(N, T, K)` of tokens.

    Args:
        student_logits: attached to the student's graph.
        labels: classes `(*positions)`, -100 where a position is ignored; or probabilities of the shape of the logits,
            all zero where a position is ignored; None only for objectives that need none.
        teacher_logits: as the student's, or a truncated teacher `(*positions)`.
        num_items: valid positions of the whole effective batch, over all micro-batches and processes.
        epoch: from 1, for objectives with a warm-up.
        num_epochs: of the whole run.

    Example:
        >>> tokens = torch.randn(2, 5, 3)
        >>> batch = build_batch(tokens, torch.zeros(2, 5, dtype=torch.long), tokens)
        >>> batch.student_logits.shape
        torch.Size([2, 3, 5])
    """
    # Classes are on axis 1, as in `F.cross_entropy`; what does not fit together is refused by the objective itself.
    if isinstance(teacher_logits, Tensor):
        teacher_logits = teacher_logits.movedim(-1, 1)
    if labels is not None and is_soft(labels) and labels.ndim == student_logits.ndim:
        labels = labels.movedim(-1, 1)
    return Batch(
        student_logits=student_logits.movedim(-1, 1),
        labels=labels,
        teacher_logits=teacher_logits,
        num_items=num_items,
        epoch=epoch,
        num_epochs=num_epochs,
    )


def total_loss(objective: Objective, batch: Batch) -> Float[Tensor, "*positions"]:
    """The sum of an objective's losses: a scalar, or one value per position with `reduction="none"`.

    Example:
        >>> logits = torch.tensor([[0.0, 0.0]])
        >>> total_loss(create("ce"), Batch(student_logits=logits, labels=torch.tensor([0])))
        tensor(0.6931)
    """
    return torch.stack(list(objective.losses(batch).values())).sum(0)


class MonitorMeans:
    """Means over the valid positions of all batches added since they were last taken.

    The values are those of `tpkd.theory.observe`: `blocked_share`, `confidence`, `label_loss`, `conditional_loss`,
    `transfer_cost`, `compensation` and `retention`. Below three classes there is nothing to see, nor where a soft label
    leaves fewer than two incorrect classes.

    Example:
        >>> means = MonitorMeans()
        >>> student, teacher = torch.tensor([[0.90, 0.07, 0.03]]).log(), torch.tensor([[0.40, 0.25, 0.35]]).log()
        >>> means.add(student, teacher, torch.tensor([0]))
        >>> seen = means.take()
        >>> seen["blocked_share"], round(seen["transfer_cost"], 4), means.take()
        (1.0, 0.665, {})
    """

    def __init__(self) -> None:
        """Nothing seen yet."""
        self._names: tuple[str, ...] = ()
        self._sums: Tensor | None = None

    def add(
        self,
        student_logits: Float[Tensor, "..."],
        teacher_logits: Float[Tensor, "..."] | TopK,
        labels: Shaped[Tensor, "..."],
        *,
        class_axis: int = -1,
        temperature: float = 1.0,
    ) -> None:
        """Look at a batch; a position that is ignored or has a logit that is not finite is left out.

        Args:
            student_logits: with the classes on `class_axis`.
            teacher_logits: likewise, or a truncated teacher of the same positions.
            labels: classes, or probabilities of the shape of the logits.
            class_axis: where hosts have the classes.
            temperature: of the protected step, `Objective.step_temperature`.
        """
        if student_logits.shape[class_axis] < MIN_CLASSES:
            return

        def rows(values: Tensor) -> Tensor:
            return values.detach().movedim(class_axis, -1).flatten(0, -2)

        student = rows(student_logits).float()
        teacher = teacher_logits.rows() if isinstance(teacher_logits, TopK) else rows(teacher_logits).float()
        usable = student.isfinite().all(-1) & _is_finite(teacher)
        if is_soft(labels):
            seen, _ = normalised_probabilities(rows(labels), student.shape, torch.float32, zero_rows=True)
            usable &= (seen == 0).sum(-1) >= MIN_INCORRECT
            seen = torch.where(usable.unsqueeze(-1), seen, 0.0)
        else:
            seen = torch.where(usable, class_indices(labels).flatten(), IGNORE_INDEX)
        values = observed_values(student, teacher, seen, temperature=temperature)
        totals = [value.sum(dtype=torch.float32) for value in values.values()]
        counts = [torch.full_like(total, value.numel()) for total, value in zip(totals, values.values(), strict=True)]
        sums = torch.stack([*totals, *counts]).view(2, -1)
        self._names = tuple(values)
        self._sums = sums if self._sums is None else self._sums + sums

    def take(self, reduce: Callable[[Tensor], Tensor] | None = None) -> dict[str, float]:
        """The means by name, then reset; empty if no valid position was seen.

        Args:
            reduce: the sum of a tensor over all processes, where there are several.
        """
        sums, self._sums = self._sums, None
        if sums is None:
            return {}
        totals, counts = (sums if reduce is None else reduce(sums)).tolist()
        found = zip(self._names, totals, counts, strict=True)
        return {name: total / count for name, total, count in found if count}


def _is_finite(teacher: Tensor | TopK) -> Tensor:
    """Which rows can be looked at; a truncated teacher may know a class to be impossible, or leave a place empty."""
    if not isinstance(teacher, TopK):
        return teacher.isfinite().all(-1)
    known = (teacher.log_probs < torch.inf) | (teacher.indices < 0)
    usable = known.all(-1)
    return usable if teacher.rest_log_probs is None else usable & (teacher.rest_log_probs < torch.inf)
