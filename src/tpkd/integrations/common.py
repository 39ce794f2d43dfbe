"""What the drop-ins of all hosts share.

- `choose_objective`: an objective by name and settings or as it is; one whose `needs` the host cannot meet is refused.
- `build_batch`: the `Batch` of an objective from logits with classes last, as hosts give them.
- `total_loss`: what an objective makes of it, as the one loss that hosts differentiate.
- `OnlineTeacher`: a network that is asked in evaluation mode and is seen by no wrapper, optimiser or checkpoint.
- `CachedTeacher`: the same answers from a teacher cache, by sample id.
- `MonitorMeans`: blocked share, conditional loss, compensation, retention and more as plain numbers, over many batches.
- `logits_of`: the logits of whatever a network returns.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tpkd.errors import InputError
from tpkd.geometry.inputs import class_indices
from tpkd.objectives.base import Batch, Objective
from tpkd.objectives.reduction import IGNORE_INDEX
from tpkd.objectives.registry import create
from tpkd.teacher.cache.read import TeacherCache, open_cache
from tpkd.theory.monitor import MIN_CLASSES, observe

LOGITS_AND_LABELS = frozenset({"labels", "teacher_logits"})
"""What every host can give to an objective; some also count epochs."""


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
        has_teacher: whether there is anybody to ask for teacher logits.
        gives: which of an objective's `needs` the host meets.

    Raises:
        InputError: the host cannot give what the objective needs, or there is no teacher; what is missing is named.

    Example:
        >>> choose_objective("tpkd", {"beta": 0.25}, host="a plain loop")
        TPKD(beta=0.25)
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


def logits_of(output: Any) -> Tensor:
    """The logits of what a network returns: a tensor, something with `logits`, or a tuple that starts with them.

    Example:
        >>> logits_of({"logits": torch.zeros(2, 3)}).shape, logits_of((torch.zeros(2, 3), None)).shape
        (torch.Size([2, 3]), torch.Size([2, 3]))
    """
    if isinstance(output, Mapping):
        found = output.get("logits")
    else:
        found = output[0] if isinstance(output, tuple | list) and output else getattr(output, "logits", output)
    if isinstance(found, Tensor) and found.is_floating_point():
        return found
    keys = f" with {', '.join(map(str, output))}" if isinstance(output, Mapping) else ""
    raise InputError(f"model: expected it to return logits, got {type(output).__name__}{keys}")


def build_batch(
    student_logits: Float[Tensor, "*positions K"],
    labels: Int[Tensor, "*positions"] | None,
    teacher_logits: Float[Tensor, "*positions K"] | None = None,
    *,
    num_items: int | Tensor | None = None,
    epoch: int | None = None,
    num_epochs: int | None = None,
) -> Batch:
    """What an objective takes, from logits with classes last: `(N, K)` of samples or `(N, T, K)` of tokens.

    Args:
        student_logits: attached to the student's graph.
        labels: classes, -100 where a position is ignored; None only for objectives that need none.
        teacher_logits: as the student's.
        num_items: valid positions of the whole effective batch, over all micro-batches and processes.
        epoch: from 1, for objectives with a warm-up.
        num_epochs: of the whole run.

    Example:
        >>> tokens = torch.randn(2, 5, 3)
        >>> batch = build_batch(tokens, torch.zeros(2, 5, dtype=torch.long), tokens)
        >>> batch.student_logits.shape
        torch.Size([2, 3, 5])
    """
    # Classes stand second, as in `F.cross_entropy`; shapes and soft labels are refused by the objective itself.
    return Batch(
        student_logits=student_logits.movedim(-1, 1),
        labels=labels,
        teacher_logits=None if teacher_logits is None else teacher_logits.movedim(-1, 1),
        num_items=num_items,
        epoch=epoch,
        num_epochs=num_epochs,
    )


def total_loss(objective: Objective, batch: Batch) -> Float[Tensor, "*positions"]:
    """The sum of an objective's losses: a number, or one a position where the batch says so.

    Example:
        >>> logits = torch.tensor([[0.0, 0.0]])
        >>> total_loss(create("ce"), Batch(student_logits=logits, labels=torch.tensor([0])))
        tensor(0.6931)
    """
    return torch.stack(list(objective.losses(batch).values())).sum(0)


class OnlineTeacher:
    """A network that answers in evaluation mode and never learns.

    It is no `nn.Module` and so hides its network from all that looks for modules: a wrapper for many processes, an
    optimiser, a state dict, `train()` of whoever holds it.

    Example:
        >>> teacher = OnlineTeacher(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)))
        >>> teacher.logits(torch.zeros(2, 4)).requires_grad
        False
    """

    def __init__(self, model: nn.Module, *, student: nn.Module | None = None) -> None:
        """Freeze the network in place; one that shares a parameter with the student is refused."""
        if student is not None:
            learning = {id(parameter): name for name, parameter in student.named_parameters()}
            shared = next((learning[id(each)] for each in model.parameters() if id(each) in learning), None)
            if shared is not None:
                raise InputError(
                    f"teacher: expected a network of its own, got one that shares {shared} with the student, "
                    "which freezing it would stop from learning: pass copy.deepcopy of it"
                )
        self.model = model.eval().requires_grad_(False)

    def __deepcopy__(self, memo: dict[int, Any]) -> "OnlineTeacher":
        """Itself: a copy of the student, as averaged weights live in, learns from the same teacher."""
        return self

    def to(self, device: torch.device) -> "OnlineTeacher":
        """Move the network, unless it was placed or quantised by whoever loaded it."""
        if getattr(self.model, "hf_device_map", None) is None and not getattr(self.model, "is_quantized", False):
            self.model.to(device)
        return self

    def logits(self, *inputs: Any, **named_inputs: Any) -> Tensor:
        """One forward pass without a graph, whatever mode somebody set the network to meanwhile."""
        self.model.eval()
        with torch.no_grad():  # not inference mode: its tensors may not enter a graph, and a loss multiplies with them
            return logits_of(self.model(*inputs, **named_inputs))


class CachedTeacher:
    """A teacher's answers by sample id, from a cache that `tpkd.teacher.cache.build_cache` or `tpkd cache build` wrote.

    Example:
        >>> CachedTeacher("/no/such/cache")
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: /no/such/cache: expected a teacher cache, found no manifest.json
    """

    def __init__(self, cache: TeacherCache | str | Path) -> None:
        """Take an open cache, or open and check the one in a directory."""
        if not isinstance(cache, TeacherCache | str | Path):
            found = type(cache).__name__  # type: ignore[unreachable]  # users do not run mypy
            raise InputError(f"teacher: expected a network, a teacher cache or the directory of one, got {found}")
        self.cache = cache if isinstance(cache, TeacherCache) else open_cache(cache)

    @property
    def num_classes(self) -> int:
        """K."""
        return self.cache.recipe.num_classes

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The names of the columns, where the cache knows them."""
        return self.cache.recipe.class_names

    def logits(
        self,
        sample_ids: Int[Tensor, "N"],
        view_ids: Int[Tensor, "N"] | None = None,
        *,
        device: torch.device | None = None,
    ) -> Float[Tensor, "N K"]:
        """The rows of these samples on a device; view ids may be left out where every sample has one view."""
        views = None if view_ids is None else view_ids.cpu()
        return self.cache.read(sample_ids.cpu(), views).to(device or sample_ids.device)


class MonitorMeans:
    """Means over the valid positions of all batches added since they were last taken.

    The values are those of `tpkd.theory.observe`: `blocked_share`, `confidence`, `label_loss`, `conditional_loss`,
    `transfer_cost`, `compensation` and `retention`. Below three classes there is nothing to see.

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
        student_logits: Float[Tensor, "*positions K"],
        teacher_logits: Float[Tensor, "*positions K"],
        labels: Int[Tensor, "*positions"],
    ) -> None:
        """Look at a batch, classes last; a position that is ignored or has a logit that is not finite is left out."""
        if student_logits.shape[-1] < MIN_CLASSES:
            return
        student, teacher = (each.detach().float().flatten(0, -2) for each in (student_logits, teacher_logits))
        finite = student.isfinite().all(-1) & teacher.isfinite().all(-1)
        seen = torch.where(finite, class_indices(labels).flatten(), IGNORE_INDEX)
        means = observe(student, teacher, seen)
        count = (seen != IGNORE_INDEX).sum()
        sums = torch.stack([*(value.float() * count for value in means.values()), count.float()])
        self._names = tuple(means)
        self._sums = sums if self._sums is None else self._sums + sums

    def take(self, reduce: Callable[[Tensor], Tensor] | None = None) -> dict[str, float]:
        """The means by name, and begin anew; nothing where no valid position was seen.

        Args:
            reduce: the sum of a tensor over all processes, where there are several.
        """
        sums, self._sums = self._sums, None
        if sums is None:
            return {}
        *values, count = (sums if reduce is None else reduce(sums)).tolist()
        return {name: value / count for name, value in zip(self._names, values, strict=True)} if count else {}
