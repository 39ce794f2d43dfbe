"""The four transfer losses of Roth et al.: imitation alone, mixed with labels, and with the data partitioned."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tpkd.geometry.split import target_entry
from tpkd.objectives.base import Batch, Objective
from tpkd.objectives.cross_entropy import label_rows
from tpkd.objectives.kd import imitation_rows
from tpkd.objectives.reduction import IGNORE_INDEX, Rows, as_rows, check_temperature, rowwise_loss

_SOURCE = "Roth et al. 2024; FantasticGains"


def kl_dist_loss(
    student_logits: Float[Tensor, "..."],
    teacher_logits: Float[Tensor, "..."],
    labels: Int[Tensor, "..."] | None = None,
    *,
    temperature: float = 1.0,
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: int | Tensor | None = None,
) -> Float[Tensor, "..."]:
    """KL-Dist: full imitation and nothing else.

    Paper: appendix E.1, L = T^2 KL(t^T || p^T) with T = 1; the gradient is T (p^T - t^T). Labels only say which
    positions to ignore and may be left out.

    Shapes: logits `(K,)`, `(N, K)` or `(N, K, d1, ...)` with K >= 2, labels the same without K.

    Returns:
        A scalar, or for `"none"` one loss a position; see `tpkd_loss` for the last three arguments.

    Example:
        >>> kl_dist_loss(torch.tensor([[2.0, 0.5, -1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5, -1.0]]))
        tensor(0.4017)
    """
    check_temperature(temperature)
    return rowwise_loss(
        lambda rows: imitation_rows(rows.student, rows.others[0], temperature),
        student_logits,
        {"teacher_logits": teacher_logits},
        labels,
        ignore_index=ignore_index,
        reduction=reduction,
        num_items=num_items,
        labels_only_mask=True,
    )


def xe_kl_loss(
    student_logits: Float[Tensor, "..."],
    teacher_logits: Float[Tensor, "..."],
    labels: Int[Tensor, "..."],
    *,
    mix: float = 0.5,
    temperature: float = 1.0,
    label_term: str = "cross-entropy",
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: int | Tensor | None = None,
) -> Float[Tensor, "..."]:
    """XE-KL: one mixture of imitation and label learning.

    Paper: appendix E.1, L = mix T^2 KL(t^T || p^T) + (1 - mix) L_CE with T = 1; there the gradient is
    p - mix t - (1 - mix) e_y. `label_term="double-softmax"` is the label term as the authors' code ran it: it feeds
    probabilities to a loss that takes logits, -log softmax(p)_y, and so hardly moves an example with a small p_y.

    Shapes: logits `(K,)`, `(N, K)` or `(N, K, d1, ...)` with K >= 2, labels the same without K.

    Returns:
        A scalar, or for `"none"` a tensor of the shape of `labels`; see `tpkd_loss` for the last three arguments.

    Example:
        >>> student, teacher = torch.tensor([[2.0, 0.5, -1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5, -1.0]])
        >>> xe_kl_loss(student, teacher, torch.tensor([0]))
        tensor(0.3720)
    """
    check_temperature(temperature)
    _check_mix(mix)
    _check_label_term(label_term)

    def row_loss(rows: Rows) -> Tensor:
        imitation = imitation_rows(rows.student, rows.others[0], temperature)
        scores = rows.student if label_term == "cross-entropy" else rows.student.softmax(-1)
        return mix * imitation + (1 - mix) * label_rows(scores, rows.labels)

    return rowwise_loss(
        row_loss,
        student_logits,
        {"teacher_logits": teacher_logits},
        labels,
        ignore_index=ignore_index,
        reduction=reduction,
        num_items=num_items,
    )


def _check_mix(mix: float) -> None:
    if not 0 <= mix <= 1:
        raise ValueError(f"mix: expected the weight of imitation, from 0 to 1, got {mix}")


def _check_label_term(label_term: str) -> None:
    if label_term not in ("cross-entropy", "double-softmax"):
        raise ValueError(f"label_term: expected 'cross-entropy' or 'double-softmax', got {label_term!r}")


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


def dp_loss(
    student_logits: Float[Tensor, "..."],
    teacher_logits: Float[Tensor, "..."],
    initial_logits: Float[Tensor, "..."],
    labels: Int[Tensor, "..."] | None = None,
    *,
    supervised: bool,
    temperature: float = 1.0,
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: int | Tensor | None = None,
) -> Float[Tensor, "..."]:
    """DP-U and DP-S: imitate the teacher where it is the surer one, the frozen initial student elsewhere.

    Paper: appendix E.1, L = T^2 KL(softmax(target / T) || p^T) with T = 1 and no label term; `selects_teacher` chooses
    the target of each position. Where it always chooses the teacher this is `kl_dist_loss` bit for bit.

    Shapes: logits `(K,)`, `(N, K)` or `(N, K, d1, ...)` with K >= 2, labels the same without K; DP-U may go without.

    Returns:
        A scalar, or for `"none"` one loss a position; see `tpkd_loss` for the last three arguments.

    Example:
        >>> student, teacher = torch.tensor([[2.0, 0.5, -1.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.5, -1.0]])
        >>> dp_loss(student, teacher, torch.tensor([[0.0, 2.5, 0.0, 0.0]]), supervised=False)
        tensor(1.1611)
    """
    check_temperature(temperature)
    if supervised and labels is None:
        raise ValueError("labels: expected class indices for the supervised partition, got None")

    def row_loss(rows: Rows) -> Tensor:
        teacher, initial = rows.others
        chosen = selects_teacher(teacher, initial, rows.labels if supervised else None)
        target = torch.where(chosen.unsqueeze(-1), teacher, initial)
        return imitation_rows(rows.student, target, temperature)

    return rowwise_loss(
        row_loss,
        student_logits,
        {"teacher_logits": teacher_logits, "initial_logits": initial_logits},
        labels,
        ignore_index=ignore_index,
        reduction=reduction,
        num_items=num_items,
        labels_only_mask=True,
    )


@dataclass
class KLDist(Objective):
    """The teacher alone; labels, where a batch has them, only mask."""

    temperature: float = 1.0

    name: ClassVar[str] = "kl-dist"
    summary: ClassVar[str] = "full imitation of the teacher, without labels"
    source: ClassVar[str] = _SOURCE

    def __post_init__(self) -> None:
        """Refuse settings that no run should start with."""
        check_temperature(self.temperature)

    @property
    def needs(self) -> frozenset[str]:
        """The teacher."""
        return frozenset({"teacher_logits"})

    def _losses(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.teacher_logits is not None
        loss = kl_dist_loss(
            batch.student_logits,
            batch.teacher_logits,
            batch.labels,
            temperature=self.temperature,
            reduction=batch.reduction,
            num_items=batch.num_items,
        )
        return {"loss": loss}


@dataclass
class XEKL(Objective):
    """A mixture of imitation and labels."""

    mix: float = 0.5
    temperature: float = 1.0
    label_term: str = "cross-entropy"

    name: ClassVar[str] = "xe-kl"
    summary: ClassVar[str] = "one mixture of imitation and cross-entropy"
    source: ClassVar[str] = _SOURCE
    reconstruction: ClassVar[str] = (
        "the mix is not stated, 0.5 as released; the release's label term applies softmax twice "
        "(label_term='double-softmax'), the intended one is the default"
    )

    def __post_init__(self) -> None:
        """Refuse settings that no run should start with."""
        check_temperature(self.temperature)
        _check_mix(self.mix)
        _check_label_term(self.label_term)

    @property
    def needs(self) -> frozenset[str]:
        """Labels and teacher."""
        return frozenset({"labels", "teacher_logits"})

    def _losses(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.teacher_logits is not None
        assert batch.labels is not None
        loss = xe_kl_loss(
            batch.student_logits,
            batch.teacher_logits,
            batch.labels,
            mix=self.mix,
            temperature=self.temperature,
            label_term=self.label_term,
            reduction=batch.reduction,
            num_items=batch.num_items,
        )
        return {"loss": loss}


@dataclass
class _DataPartition(Objective):
    temperature: float = 1.0

    source: ClassVar[str] = _SOURCE
    supervised: ClassVar[bool]
    """Whether the label decides which of the two is the surer one."""

    def __post_init__(self) -> None:
        """Refuse settings that no run should start with."""
        check_temperature(self.temperature)

    @property
    def needs(self) -> frozenset[str]:
        """Teacher and frozen initial student, and labels where they decide."""
        always = frozenset({"teacher_logits", "initial_logits"})
        return always | {"labels"} if self.supervised else always

    def _losses(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.teacher_logits is not None
        assert batch.initial_logits is not None
        loss = dp_loss(
            batch.student_logits,
            batch.teacher_logits,
            batch.initial_logits,
            batch.labels,
            supervised=self.supervised,
            temperature=self.temperature,
            reduction=batch.reduction,
            num_items=batch.num_items,
        )
        return {"loss": loss}

    def metrics(self, batch: Batch) -> dict[str, Tensor]:
        """The share of valid positions whose target is the teacher's."""
        assert batch.teacher_logits is not None
        assert batch.initial_logits is not None
        others = {"teacher_logits": batch.teacher_logits, "initial_logits": batch.initial_logits}
        student = batch.student_logits.detach()
        rows = as_rows(student, others, batch.labels, ignore_index=IGNORE_INDEX, labels_only_mask=True)
        teacher, initial = rows.others
        chosen = selects_teacher(teacher, initial, rows.labels if self.supervised else None) & rows.valid
        return {"teacher_selection_rate": chosen.sum() / rows.valid.sum().clamp(min=1)}


class DPU(_DataPartition):
    """The partition by top probability."""

    name: ClassVar[str] = "dp-u"
    summary: ClassVar[str] = "imitate whichever is more confident, the teacher or the frozen initial student"
    supervised: ClassVar[bool] = False


class DPS(_DataPartition):
    """The partition by the probability of the label."""

    name: ClassVar[str] = "dp-s"
    summary: ClassVar[str] = (
        "imitate whichever gives the label more probability, the teacher or the frozen initial student"
    )
    supervised: ClassVar[bool] = True
