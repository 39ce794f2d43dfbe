"""A teacher of which only the largest log-probabilities were kept, and its completion by the student (EXTENSIONS 2).

Of each position are known: the log-probabilities of k classes, that of the label, and so the total of all others, the
rest. Nothing is known about proportions inside the rest; there the completed teacher takes the student's own, which is
the nearest distribution to the student among all that agree with what the teacher said.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpkd.geometry.correct import correct_mask
from tpkd.geometry.inputs import can_read_values, check_labels, check_logits, class_indices, computation_dtype

EMPTY = -1
"""The index of a place that holds no class."""


@dataclass(frozen=True, eq=False)
class TopK:
    """A truncated teacher, in the place of its logits; files use these names as keys.

    A kept class of log-probability -inf is a known zero; index -1 marks an empty place. No gradient flows to it.

    Example:
        >>> log_probs = torch.tensor([[0.5, 0.3]]).log()
        >>> TopK(log_probs, torch.tensor([[2, 0]]), label_log_probs=torch.tensor([0.1]).log()).k
        2
    """

    log_probs: Float[Tensor, "*positions k"]
    """Of the kept classes, in any order."""
    indices: Int[Tensor, "*positions k"]
    """Which classes they are."""
    label_log_probs: Float[Tensor, "*positions"] | None = None
    """Of the label; it wins over a label among the kept classes. nan where it is not known."""
    rest_log_probs: Float[Tensor, "*positions"] | None = None
    """The log of the total of all classes that are not given. Left out, one minus what is given, which cancels where
    log-probabilities were rounded: keep it from before rounding where you can."""

    def __post_init__(self) -> None:
        """Refuse shapes and types that do not fit together."""
        check_logits("log_probs", self.log_probs, min_classes=1)
        if not isinstance(self.indices, Tensor) or self.indices.is_floating_point() or self.indices.dtype == torch.bool:
            found = str(self.indices.dtype) if isinstance(self.indices, Tensor) else type(self.indices).__name__
            raise ValueError(f"indices: expected integer classes, got {found}")
        if self.indices.shape != self.log_probs.shape:
            expected = f"the shape of log_probs {tuple(self.log_probs.shape)}"
            raise ValueError(f"indices: expected {expected}, got {tuple(self.indices.shape)}")
        for name in ("label_log_probs", "rest_log_probs"):
            values = getattr(self, name)
            if values is not None and (not isinstance(values, Tensor) or not values.is_floating_point()):
                found = str(values.dtype) if isinstance(values, Tensor) else type(values).__name__
                raise ValueError(f"{name}: expected floating-point log-probabilities, got {found}")
            if values is not None and values.shape != self.shape:
                raise ValueError(f"{name}: expected shape {tuple(self.shape)}, got {tuple(values.shape)}")

    @property
    def shape(self) -> torch.Size:
        """That of the positions, without classes."""
        return self.log_probs.shape[:-1]

    @property
    def k(self) -> int:
        """Places for kept classes."""
        return self.log_probs.shape[-1]

    def map(self, change: Callable[[Tensor], Tensor]) -> "TopK":
        """The same change made to every tensor, as `top_k.map(lambda x: x.to(device))`."""
        values = (getattr(self, field.name) for field in fields(self))
        return TopK(*(None if value is None else change(value) for value in values))  # type: ignore[arg-type]

    def __getitem__(self, positions: Any) -> "TopK":
        """Some of the positions, by what indexes their axes."""
        return self.map(lambda values: values[positions])

    def __len__(self) -> int:
        """The number of positions along the first axis."""
        return len(self.log_probs)

    def split(self, count: int) -> list["TopK"]:
        """So many positions at a time, as `torch.Tensor.split`."""
        return [self[start : start + count] for start in range(0, len(self), count)]

    def rows(self) -> "TopK":
        """All positions along one axis."""
        count = self.shape.numel()
        per_class = (self.log_probs.reshape(count, self.k), self.indices.reshape(count, self.k))
        others = (self.label_log_probs, self.rest_log_probs)
        return TopK(*per_class, *(None if values is None else values.reshape(count) for values in others))


def check_top_k(top_k: TopK, num_classes: int, *, name: str = "teacher") -> None:
    """Refuse what a loss does not look at: classes out of range or given twice, positive log-probabilities, nan.

    Example:
        >>> check_top_k(TopK(torch.zeros(1, 2), torch.tensor([[3, 3]])), 5)
        Traceback (most recent call last):
            ...
        ValueError: teacher: indices: expected every class once, got class 3 twice in row 0
    """
    flat = top_k.rows()
    indices = class_indices(flat.indices)
    outside = (indices < EMPTY) | (indices >= num_classes)
    if outside.any():
        row, place = outside.nonzero()[0].tolist()
        expected = f"classes from 0 to {num_classes - 1}, or -1 for an empty place"
        raise ValueError(f"{name}: indices: expected {expected}, got {indices[row, place].item()} in row {row}")
    ordered = indices.sort(-1).values
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if twice.any():
        row, place = twice.nonzero()[0].tolist()
        raise ValueError(
            f"{name}: indices: expected every class once, got class {ordered[row, place].item()} twice in row {row}"
        )
    above = 1e-2 if flat.log_probs.dtype in (torch.float16, torch.bfloat16) else 1e-4
    for field in ("log_probs", "label_log_probs", "rest_log_probs"):
        values = getattr(flat, field)
        if values is None:
            continue
        may_be_nan = indices < 0 if field == "log_probs" else torch.tensor(field == "label_log_probs")
        wrong = ~(values <= above) & ~(values.isnan() & may_be_nan.to(values.device))
        if wrong.any():
            index = wrong.nonzero()[0].tolist()
            raise ValueError(
                f"{name}: {field}: expected log-probabilities, which are at most 0, got "
                f"{values[tuple(index)].item():g} in row {index[0]}"
            )


@dataclass(frozen=True)
class Known:
    """What a truncated teacher says about positions as rows, in the dtype to compute in."""

    log_probs: Float[Tensor, "*positions K"]
    """Of the kept incorrect classes and of the label, -inf elsewhere."""
    kept: Bool[Tensor, "*positions K"]
    """S: the kept classes, without the label."""
    rest: Bool[Tensor, "*positions K"]
    """R: the classes of which only the total is known; with the label where that is not known."""
    log_rest: Float[Tensor, "*positions"]
    """log t_R."""
    has_label: Bool[Tensor, "*positions"]
    """Whether the label's log-probability is known."""


def what_is_known(top_k: TopK, labels: Int[Tensor, "*positions"], num_classes: int, dtype: torch.dtype) -> Known:
    """A truncated teacher spread out over all classes.

    Example:
        >>> top_k = TopK(torch.tensor([[0.5, 0.3]]).log(), torch.tensor([[2, 0]]))
        >>> known = what_is_known(top_k, torch.tensor([0]), 4, torch.float32)
        >>> known.kept, known.rest, known.log_rest.exp()
        (tensor([[False, False,  True, False]]), tensor([[False,  True, False,  True]]), tensor([0.2000]))
    """
    indices = class_indices(top_k.indices)
    place = torch.where(indices < 0, num_classes, indices)  # one class more, which takes what is empty
    spread = top_k.log_probs.new_full((*top_k.shape, num_classes + 1), -torch.inf, dtype=dtype)
    given = torch.zeros_like(spread, dtype=torch.bool).scatter(-1, place, True)[..., :-1]
    log_probs = spread.scatter(-1, place, top_k.log_probs.detach().to(dtype))[..., :-1]
    is_label = correct_mask(labels, num_classes)
    log_label = log_probs.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    has_label = given.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    if top_k.label_log_probs is not None:
        stored = top_k.label_log_probs.detach().to(dtype)
        log_label, has_label = torch.where(stored.isnan(), log_label, stored), has_label | ~stored.isnan()
    log_probs = torch.where(is_label, torch.where(has_label, log_label, -torch.inf).unsqueeze(-1), log_probs)
    kept = given & ~is_label
    rest = ~kept & ~(is_label & has_label.unsqueeze(-1))
    if top_k.rest_log_probs is None:
        wide = torch.float32 if log_probs.device.type == "mps" else torch.float64  # because the difference cancels
        among = (indices >= 0) & (indices != labels.unsqueeze(-1))
        total = (top_k.log_probs.detach().to(wide).exp() * among).sum(-1)
        log_rest = (1 - torch.where(has_label, log_label.to(wide).exp(), 0.0) - total).clamp(min=0).log().to(dtype)
    else:
        log_rest = top_k.rest_log_probs.detach().to(dtype)
    return Known(log_probs, kept, rest, torch.where(rest.any(-1), log_rest, -torch.inf), has_label)


def complete(known: Known, student_logits: Float[Tensor, "*positions K"]) -> Float[Tensor, "*positions K"]:
    """The completed teacher: the student's own proportions wherever the teacher said nothing.

    Example:
        >>> top_k = TopK(torch.tensor([[0.5]]).log(), torch.tensor([[0]]))
        >>> known = what_is_known(top_k, torch.tensor([0]), 3, torch.float32)
        >>> complete(known, torch.tensor([[0.0, 0.8, 0.2]]).log()).exp()
        tensor([[0.5000, 0.4000, 0.1000]])
    """
    z = student_logits.masked_fill(~known.rest, -torch.inf)
    # A student that rules out all of the rest, as by a mask of its logits, has no proportions there to take over.
    proportions = z.log_softmax(-1).masked_fill(z == -torch.inf, -torch.inf)
    return torch.where(known.rest, known.log_rest.unsqueeze(-1) + proportions, known.log_probs)


def check_top_k_batch(
    student_logits: Tensor, top_k: TopK, labels: Tensor | None, *, ignore_index: int | None = None
) -> Int[Tensor, "*positions"]:
    """Refuse a student, a truncated teacher and labels that do not fit together; return the labels in int64."""
    check_logits("student_logits", student_logits)
    if top_k.shape != student_logits.shape[:-1]:
        expected = f"the positions of student_logits {tuple(student_logits.shape[:-1])}"
        raise ValueError(f"top_log_probs: expected {expected}, got {tuple(top_k.shape)}")
    num_classes = student_logits.shape[-1]
    if isinstance(labels, Tensor) and labels.is_floating_point():
        raise ValueError("labels: expected integer class indices with a truncated teacher, got probabilities")
    check_top_k_range(top_k, num_classes)
    return check_labels(labels, student_logits.shape[:-1], num_classes, ignore_index=ignore_index)


def check_top_k_range(top_k: TopK, num_classes: int) -> None:
    """Refuse kept classes that do not exist, where looking is free.

    Example:
        >>> check_top_k_range(TopK(torch.zeros(1, 1), torch.tensor([[3]])), 3)
        Traceback (most recent call last):
            ...
        ValueError: top_indices: expected classes from -1 (empty) to 2, got 3
    """
    if not can_read_values(top_k.indices) or not top_k.indices.numel():
        return
    least, greatest = class_indices(top_k.indices).aminmax()
    if least < EMPTY or greatest >= num_classes:
        found = int(least if least < EMPTY else greatest)
        raise ValueError(f"top_indices: expected classes from -1 (empty) to {num_classes - 1}, got {found}")


def complete_top_k(
    student_logits: Float[Tensor, "*positions K"],
    top_log_probs: Float[Tensor, "*positions k"],
    top_indices: Int[Tensor, "*positions k"],
    labels: Int[Tensor, "*positions"],
    *,
    label_log_probs: Float[Tensor, "*positions"] | None = None,
    rest_log_probs: Float[Tensor, "*positions"] | None = None,
) -> Float[Tensor, "*positions K"]:
    """The nearest whole teacher to the student that agrees with everything a truncated one said.

    EXTENSIONS 2: argmin KL(q || r) over all conditional distributions q with the given values on the kept classes S;
    it has the student's own proportions on the rest R, q_j = q_R r_j / r_R. Distilling from a truncated teacher is
    distilling from this one, taken at the current student. It is the reference; the losses never hold it.

    Shapes: logits `(*positions, K)`, log-probabilities and indices `(*positions, k)`, labels and what is known beside
    them `(*positions)`; returns log-probabilities `(*positions, K)`. Where the label's is not known, the label is one
    of the rest here; `top_k_tpkd_loss` learns only the proportions inside S there.

    Example:
        >>> student, kept, label = torch.tensor([[0.4, 0.3, 0.2, 0.1]]), torch.tensor([[0.5]]), torch.tensor([0.2])
        >>> given = (student.log(), kept.log(), torch.tensor([[1]]), torch.tensor([0]))
        >>> complete_top_k(*given, label_log_probs=label.log()).exp()
        tensor([[0.2000, 0.5000, 0.2000, 0.1000]])
    """
    top_k = TopK(top_log_probs, top_indices, label_log_probs, rest_log_probs)
    y = check_top_k_batch(student_logits, top_k, labels)
    dtype = computation_dtype(student_logits, top_log_probs)
    known = what_is_known(top_k, y, student_logits.shape[-1], dtype)
    return complete(known, student_logits.detach().to(dtype))
