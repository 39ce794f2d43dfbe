"""The base of every method that is a loss of one position at a time: it gives the formula, this does the rest."""

from abc import abstractmethod
from collections.abc import Set as AbstractSet
from typing import Any

from jaxtyping import Float, Shaped
from torch import Tensor

from tpkd.geometry.top_k import TopK, check_top_k_batch
from tpkd.objectives.base import BATCH_NEEDS, Batch, Objective
from tpkd.objectives.reduction import IGNORE_INDEX, as_rows, check_reduction, reduce_rows

_BY_KEYWORD = BATCH_NEEDS - {"labels", "teacher_logits"}


class RowObjective(Objective):
    """A method whose loss is a sum over positions: a subclass names itself and gives `row_losses`.

    Shapes, masks, dtypes, reductions and denominators come from here. An instance is also the loss as a function:
    `objective(student_logits, teacher_logits, labels)` takes what `tpkd_loss` takes. What a method needs besides labels
    and teacher is passed to `row_losses` by keyword: `initial_logits` as rows, `epoch` and `num_epochs` as they are.
    Without `"labels"` among the needs, labels only say which positions to ignore.

    Example:
        >>> import torch
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class LogitMatching(RowObjective):
        ...     match_weight: float = 1.0
        ...
        ...     def row_losses(self, student, teacher, labels):
        ...         return self.match_weight * (student - teacher).square().mean(-1)
        >>> LogitMatching()(torch.ones(2, 3), torch.zeros(2, 3), torch.tensor([0, 1]))
        tensor(1.)
    """

    @property
    def needs(self) -> AbstractSet[str]:
        """Labels and teacher, unless a method says otherwise: `needs = frozenset({...})` is enough."""
        return frozenset({"labels", "teacher_logits"})

    @property
    def takes_weights(self) -> bool:
        """Wherever the loss is a sum over positions."""
        return self.separable

    @abstractmethod
    def row_losses(self, *args: Any, **kwargs: Any) -> Float[Tensor, "rows"]:
        """The loss of each row: `row_losses(self, student, teacher, labels)`, of `(rows, K)` twice and `(rows,)`.

        No gradient flows to the teacher, which is `None` where it is not needed; an ignored row holds zeros. Do not
        write into the tensors: they may be the caller's own. A method with `takes_soft_labels = True` may get labels
        `(rows, K)`, one with `takes_top_k` a teacher that is a `TopK`.
        """

    def __call__(
        self,
        student_logits: Float[Tensor, "..."],
        teacher_logits: Float[Tensor, "..."] | TopK | None = None,
        labels: Shaped[Tensor, "..."] | None = None,
        *,
        initial_logits: Float[Tensor, "..."] | None = None,
        ignore_index: int = IGNORE_INDEX,
        reduction: str = "mean",
        num_items: float | Tensor | None = None,
        sample_weights: Float[Tensor, "..."] | None = None,
        **more: Any,
    ) -> Float[Tensor, "..."]:
        """The loss as a function; see `tpkd_loss` for the arguments. `more` is what else `row_losses` takes."""
        check_reduction(reduction, num_items, weighted=sample_weights is not None)
        self.check_kinds(teacher_logits, labels)
        needs, given = self.needs, {"teacher_logits": teacher_logits, "initial_logits": initial_logits}
        others: dict[str, Any] = {name: logits for name, logits in given.items() if name in needs}
        top_k = others.pop("teacher_logits") if isinstance(others.get("teacher_logits"), TopK) else None
        if top_k is not None:
            last = student_logits if student_logits.ndim == 1 else student_logits.movedim(1, -1)
            check_top_k_batch(last, top_k, labels, ignore_index=ignore_index)
        rows = as_rows(
            student_logits,
            others,
            labels,
            ignore_index=ignore_index,
            min_classes=self.min_classes,
            labels_only_mask="labels" not in needs,
            sample_weights=sample_weights,
        )
        teacher = rows.others.pop("teacher_logits", None) if top_k is None else top_k.rows()
        losses = self.row_losses(rows.student, teacher, rows.labels, **rows.others, **more)
        return reduce_rows(losses, rows, reduction=reduction, num_items=num_items)

    def compute_losses(self, batch: Batch) -> dict[str, Tensor]:
        """One loss, `"loss"`."""
        more: dict[str, Any] = {name: getattr(batch, name) for name in _BY_KEYWORD & self.needs}
        more |= {"reduction": batch.reduction, "num_items": batch.num_items}
        if batch.sample_weights is not None:
            more["sample_weights"] = batch.sample_weights
        return {"loss": self(batch.student_logits, batch.teacher_logits, batch.labels, **more)}
