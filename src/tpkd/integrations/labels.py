"""Labels as hosts give them, classes or probabilities: which positions count, and what is looked at once a run.

- `is_soft`, `valid_positions`: the kind of the labels, and which of them are not ignored.
- `FirstLook`: refuse what a loss does not look at on an accelerator, in the first batch that has it.
"""

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from tpkd.errors import InputError
from tpkd.geometry.correct import check_support, normalised_probabilities
from tpkd.geometry.inputs import can_read_values, class_indices
from tpkd.geometry.top_k import TopK
from tpkd.objectives.base import Objective
from tpkd.objectives.reduction import IGNORE_INDEX


def is_soft(labels: object) -> bool:
    """Whether labels are probabilities, as those of mixup, rather than classes.

    Example:
        >>> is_soft(torch.tensor([[0.5, 0.5, 0.0]])), is_soft(torch.tensor([1])), is_soft(None)
        (True, False, False)
    """
    return isinstance(labels, Tensor) and labels.is_floating_point()


def valid_positions(labels: Shaped[Tensor, "..."], *, class_axis: int = -1) -> Bool[Tensor, "*positions"]:
    """Which positions count: those with a class other than -100, or with probabilities that are not all zero.

    Example:
        >>> valid_positions(torch.tensor([2, -100])), valid_positions(torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]))
        (tensor([ True, False]), tensor([ True, False]))
    """
    return (labels != 0).any(class_axis) if is_soft(labels) else class_indices(labels) != IGNORE_INDEX


class FirstLook:
    """Checks of values that a loss leaves out on an accelerator, where looking at every batch would stall it.

    The first batch with soft labels must hold probabilities that leave the objective something to learn: labels of a
    regression, several labels at once and smoothed labels show in any batch. With a truncated teacher the labels
    must be those that its cache was built with, whose log-probabilities it has kept.

    Example:
        >>> from tpkd.objectives.registry import create
        >>> FirstLook()(create("tpkd"), torch.zeros(1, 4), torch.tensor([[1.0, 1.0, 0.0, 0.0]]))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        ValueError: labels: expected probabilities, nonnegative with sum 1 ..., got a row with ... sum 2 at row 0
    """

    def __init__(self) -> None:
        """Nothing seen yet."""
        self._seen: set[tuple[str, str]] = set()

    def __call__(
        self,
        objective: Objective,
        student_logits: Float[Tensor, "..."],
        labels: Shaped[Tensor, "..."] | None,
        teacher: Tensor | TopK | None = None,
        *,
        class_axis: int = -1,
    ) -> None:
        """Look at a batch, if there is something that no batch before it has shown to this objective."""
        if labels is None:
            return
        fits = labels.shape == student_logits.shape  # what does not is refused by the loss, on every device
        if is_soft(labels) and fits and self._is_first(objective, "soft"):
            check_soft_labels(objective, labels, class_axis=class_axis)
        if isinstance(teacher, TopK) and not is_soft(labels):
            # The loss itself never compares these: so in every batch where looking is free.
            is_first = self._is_first(objective, "truncated")
            if is_first or can_read_values(labels):
                check_kept_labels(teacher, labels)

    def _is_first(self, objective: Objective, kind: str) -> bool:
        key = (objective.name, kind)
        is_first = key not in self._seen
        self._seen.add(key)
        return is_first


def check_soft_labels(objective: Objective, labels: Tensor, *, class_axis: int = -1) -> None:
    """Refuse labels that are not probabilities, or that leave nothing to learn, on whatever device they are.

    Example:
        >>> from tpkd.objectives.registry import create
        >>> smoothed = torch.tensor([[0.8, 0.1, 0.1]])
        >>> check_soft_labels(create("kd"), smoothed)
        >>> check_soft_labels(create("tpkd"), smoothed)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        ValueError: labels: expected at least 2 classes outside the support of each row, got 0 at row 0; label ...
    """
    last = labels.detach().movedim(class_axis, -1).cpu()
    shares, valid = normalised_probabilities(last, last.shape, torch.float32, zero_rows=True)
    if objective.takes_soft_labels and objective.min_classes > 2:  # it compares incorrect classes
        first = torch.arange(shares.shape[-1]) == 0
        check_support(torch.where(valid.unsqueeze(-1), shares > 0, first))


def check_kept_labels(teacher: TopK, labels: Shaped[Tensor, "*positions"]) -> None:
    """Refuse labels other than those whose log-probabilities a truncated cache has kept, where the two disagree.

    A cache stores the log-probability of the label beside the largest classes. A label among these must have it twice;
    any other must be less likely than all of them.

    Raises:
        InputError: the row, the class, and both numbers.

    Example:
        >>> top_k = TopK(torch.tensor([[0.5, 0.3]]).log(), torch.tensor([[2, 0]]), torch.tensor([0.1]).log())
        >>> check_kept_labels(top_k, torch.tensor([1]))
        >>> check_kept_labels(top_k, torch.tensor([2]))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: labels: expected those that the teacher cache was built with, got class 2 in row 0, ...
    """
    if teacher.label_log_probs is None or teacher.shape != labels.shape:
        return  # shapes are refused by the loss
    rows, y = teacher.map(lambda values: values.detach().cpu()).rows(), class_indices(labels.detach()).cpu().flatten()
    assert rows.label_log_probs is not None
    stored, kept = rows.label_log_probs, rows.indices == y.unsqueeze(-1)
    own = rows.log_probs.masked_fill(~kept, -torch.inf).amax(-1)
    least = rows.log_probs.masked_fill(rows.indices < 0, torch.inf).amin(-1)
    wrong = torch.where(kept.any(-1), stored != own, stored > least) & ~stored.isnan() & (y != IGNORE_INDEX)
    if wrong.any():
        row = int(wrong.int().argmax())
        known = f"is {own[row]:.4g}" if kept[row].any() else f"is at most {least[row]:.4g}"
        raise InputError(
            f"labels: expected those that the teacher cache was built with, got class {int(y[row])} in row {row}, "
            f"whose log-probability {known} in the cache, where that of the label is {stored[row]:.4g}: build the "
            "cache with these labels, or one without top_k, which does not depend on them"
        )
