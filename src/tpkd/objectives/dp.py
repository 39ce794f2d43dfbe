"""DP-U and DP-S: the data partitioned between the teacher and the frozen initial student."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpkd.geometry.correct import target_entry
from tpkd.objectives.base import Batch, PaperAccuracy, TeacherAverage
from tpkd.objectives.kd import imitation_rows
from tpkd.objectives.reduction import IGNORE_INDEX, as_rows, denominator
from tpkd.objectives.registry import register
from tpkd.objectives.row_objective import RowObjective


def selects_teacher(
    teacher_logits: Float[Tensor, "*batch K"],
    initial_logits: Float[Tensor, "*batch K"],
    labels: Int[Tensor, "*batch"] | None = None,
) -> Bool[Tensor, "*batch"]:
    """Which examples a partition gives to the teacher; the others go to the frozen initial student.

    With labels (DP-S) the more probable label wins, without (DP-U) the higher top probability. Always at unit
    temperature; a tie goes to the frozen student.

    Example:
        >>> teacher, initial = torch.tensor([[1.0, 0.0, 0.5, -1.0]]), torch.tensor([[0.0, 2.5, 0.0, 0.0]])
        >>> selects_teacher(teacher, initial), selects_teacher(teacher, initial, torch.tensor([0]))
        (tensor([False]), tensor([True]))
    """

    def log_confidence(logits: Tensor) -> Tensor:
        log_probs = logits.log_softmax(-1)
        return log_probs.amax(-1) if labels is None else target_entry(log_probs, labels)

    return log_confidence(teacher_logits) > log_confidence(initial_logits)


@dataclass
class _DataPartition(RowObjective):
    temperature: float = 1.0

    source = "Roth et al. 2024; FantasticGains"
    supervised: ClassVar[bool]
    """Whether the label decides which of the two is the surer one."""
    average_condition = "set temperature=1, where teachers are chosen and imitated by the same probabilities"

    @property
    def teacher_average(self) -> TeacherAverage | None:
        """At temperature 1 alone, at which the surer one is always chosen: no one teacher has both averages."""
        return "probabilities" if self.temperature == 1 else None

    def row_losses(self, student: Tensor, teacher: Tensor, labels: Tensor, initial_logits: Tensor) -> Tensor:
        chosen = selects_teacher(teacher, initial_logits, labels if self.supervised else None)
        return imitation_rows(student, torch.where(chosen.unsqueeze(-1), teacher, initial_logits), self.temperature)

    def metrics(self, batch: Batch) -> dict[str, Tensor]:
        """The share of valid positions whose target is the teacher's."""
        assert isinstance(batch.teacher_logits, Tensor)
        assert batch.initial_logits is not None
        others = {"teacher_logits": batch.teacher_logits, "initial_logits": batch.initial_logits}
        student = batch.student_logits.detach()
        rows = as_rows(student, others, batch.labels, ignore_index=IGNORE_INDEX, labels_only_mask=True)
        teacher, initial = rows.others.values()
        chosen = selects_teacher(teacher, initial, rows.labels if self.supervised else None)
        count = (chosen if rows.valid is None else chosen & rows.valid).sum()
        return {"teacher_selection_rate": count / denominator(len(chosen), rows.valid, None)}


@register
class DPU(_DataPartition):
    """The partition by top probability."""

    name = "dp-u"
    title = "DP-U"
    summary = "imitate whichever is more confident, the teacher or the frozen initial student"
    needs = frozenset({"teacher_logits", "initial_logits"})
    supervised = False
    paper_accuracy = PaperAccuracy(vision=(83.14, 0.04), text=(93.38, 0.19))


@register
class DPS(_DataPartition):
    """The partition by the probability of the label."""

    name = "dp-s"
    title = "DP-S"
    summary = "imitate whichever gives the label more probability, the teacher or the frozen initial student"
    needs = frozenset({"teacher_logits", "initial_logits", "labels"})
    supervised = True
    paper_accuracy = PaperAccuracy(vision=(83.65, 0.01), text=(93.44, 0.28))


def dp_loss(
    student_logits: Float[Tensor, "..."],
    teacher_logits: Float[Tensor, "..."],
    initial_logits: Float[Tensor, "..."],
    labels: Int[Tensor, "..."] | None = None,
    *,
    supervised: bool,
    temperature: float = 1.0,
    sample_weights: Float[Tensor, "..."] | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: float | Tensor | None = None,
) -> Float[Tensor, "..."]:
    """DP-U and DP-S: imitate the teacher where it is the surer one, the frozen initial student elsewhere.

    Paper: appendix E.1, L = T^2 KL(softmax(target / T) || p^T) with T = 1 and no label term; `selects_teacher` chooses
    the target of each position. Where it always chooses the teacher this is `kl_dist_loss` bit for bit.

    Shapes: logits `(K,)`, `(N, K)` or `(N, K, d1, ...)` with K >= 2, labels the same without K; DP-U may go without.

    Returns:
        A scalar, or for `"none"` one loss per position; see `tpkd_loss` for the last four arguments.

    Example:
        >>> student, teacher = torch.tensor([[2.0, 0.5, -1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5, -1.0]])
        >>> dp_loss(student, teacher, torch.tensor([[0.0, 2.5, 0.0, 0.0]]), supervised=False)
        tensor(1.1611)
    """
    objective = DPS(temperature) if supervised else DPU(temperature)
    if supervised and labels is None:
        raise ValueError("labels: expected class indices for the supervised partition, got None")
    return objective(
        student_logits,
        teacher_logits,
        labels,
        initial_logits=initial_logits,
        ignore_index=ignore_index,
        reduction=reduction,
        num_items=num_items,
        sample_weights=sample_weights,
    )
