"""DHKD: labels train the student's head, the teacher trains a second head on the same features."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from tpkd.geometry.inputs import class_indices, computation_dtype
from tpkd.objectives.base import Batch, Objective, PaperAccuracy
from tpkd.objectives.binary_kl import BinaryKL, BinaryKLNorm
from tpkd.objectives.cross_entropy import CrossEntropy
from tpkd.objectives.reduction import IGNORE_INDEX, check_weight
from tpkd.objectives.registry import register

HIDDEN_SIZE = 200
"""Width of the released nonlinear head."""


_DIVERGENCES = {"binary-kl-norm": BinaryKLNorm, "binary-kl": BinaryKL}


def align_gradients(
    label_gradient: Float[Tensor, "P"], distillation_gradient: Float[Tensor, "P"]
) -> Float[Tensor, "P"]:
    """Add the distillation gradient without the part that opposes the label gradient, which is never altered.

    g = g_c + g_b where <g_b, g_c> >= 0, and else g_c + g_b - (<g_b, g_c> / ||g_c||^2) g_c. Both are flattened over all
    parameters, the heads included, as released: the norm of g_c then counts the main head, which the inner product
    cannot see.

    Example:
        >>> align_gradients(torch.tensor([1.0, 0.0]), torch.tensor([-2.0, 1.0]))
        tensor([1., 1.])
    """
    inner = distillation_gradient @ label_gradient
    square = label_gradient @ label_gradient
    # A zero label gradient opposes nothing; the inner where keeps 0/0 out of the quotient.
    conflict = torch.where(inner < 0, inner / torch.where(square > 0, square, 1.0), 0.0)
    return label_gradient + distillation_gradient - conflict * label_gradient


def auxiliary_head(kind: str, feature_size: int, num_classes: int) -> nn.Module:
    """The second head as released: `"linear"`, or `"nonlinear"` with one hidden layer of 200.

    Example:
        >>> auxiliary_head("linear", 16, 10)
        Linear(in_features=16, out_features=10, bias=True)
    """
    if kind == "linear":
        return nn.Linear(feature_size, num_classes)
    if kind == "nonlinear":
        return nn.Sequential(
            nn.Linear(feature_size, HIDDEN_SIZE),
            nn.Dropout(0.1),
            nn.BatchNorm1d(HIDDEN_SIZE),
            nn.ReLU(),
            nn.Linear(HIDDEN_SIZE, num_classes),
        )
    raise ValueError(f"head: expected 'linear' or 'nonlinear', got {kind!r}")


@dataclass(frozen=True)
class _Preset:
    head: str
    align: bool
    alpha: float
    cutoff: float


_PRESETS = {
    "cifar-release": _Preset(head="nonlinear", align=True, alpha=1.0, cutoff=0.0),
    "imagenet-release": _Preset(head="linear", align=False, alpha=0.1, cutoff=0.5),
}
_PRESET_FIELDS = tuple(setting.name for setting in fields(_Preset))


@register
class DHKD(Objective):
    """Dual-head distillation, L = ce_weight L_CE(main head) + alpha B(auxiliary head, teacher).

    `preset` names one of the two released settings, which `head`, `align`, `alpha` and `cutoff` override. `cutoff` is
    the share of the epochs from which alpha is 0 (the ImageNet release: epoch 50 of 100); 0 means never. The auxiliary
    head is built from `feature_size` and `num_classes`, or from the first batch.
    """

    preset: str = "cifar-release"
    head: str | None = None
    align: bool | None = None
    alpha: float | None = None
    cutoff: float | None = None
    ce_weight: float = 1.0
    temperature: float = 2.0
    divergence: str = "binary-kl-norm"
    feature_size: int | None = None
    num_classes: int | None = None
    _head: nn.Module | None = field(default=None, init=False, repr=False)

    name = "dhkd"
    title = "DHKD"
    summary = "cross-entropy on the main head, logit matching on a second head, gradients aligned"
    source = "Yang et al. 2025; penghui-yang/DHKD"
    reconstruction = (
        "only T = 2 is stated; head, weight, gradient alignment and cut-off are a released preset "
        "(cifar-release, or imagenet-release)"
    )
    paper_accuracy = PaperAccuracy(vision=(85.83, 0.10), text=(93.29, 0.38))

    def check(self) -> None:
        """Fill in the preset and refuse what no release has."""
        if self.preset not in _PRESETS:
            raise ValueError(f"preset: expected one of {', '.join(_PRESETS)}, got {self.preset!r}")
        if self.divergence not in _DIVERGENCES:
            raise ValueError(f"divergence: expected one of {', '.join(_DIVERGENCES)}, got {self.divergence!r}")
        for name, value in asdict(self._chosen).items():
            setattr(self, name, value)  # so that repr shows the resolved settings
        chosen = self._chosen
        if chosen.head not in ("linear", "nonlinear"):
            raise ValueError(f"head: expected 'linear' or 'nonlinear', got {chosen.head!r}")
        if not 0 <= chosen.cutoff <= 1:
            raise ValueError(f"cutoff: expected a share of the epochs, or 0 for never, got {chosen.cutoff}")
        check_weight("alpha", chosen.alpha)
        if self.feature_size is not None and self.num_classes is not None:
            self._head = auxiliary_head(chosen.head, self.feature_size, self.num_classes)

    @property
    def needs(self) -> frozenset[str]:
        """Labels, teacher and features; one gradient a loss to align them; the epochs where there is a cut-off."""
        needs = {"labels", "teacher_logits", "features"}
        if self.align:
            needs |= {"objective_gradients"}
        if self._chosen.cutoff:
            needs |= {"epoch", "num_epochs"}
        return frozenset(needs)

    @property
    def separable(self) -> bool:
        """Alignment is not linear in the gradients, and the nonlinear head takes statistics of its batch."""
        return self.head == "linear" and not self.align

    @property
    def takes_weights(self) -> bool:
        """Where the loss is a sum over samples."""
        return self.separable

    @property
    def min_rows(self) -> int:
        """Two for the nonlinear head, which normalises over a batch."""
        return 2 if self._chosen.head == "nonlinear" else 1

    @property
    def _chosen(self) -> _Preset:
        own = {name: value for name in _PRESET_FIELDS if (value := getattr(self, name)) is not None}
        return replace(_PRESETS[self.preset], **own)

    def compute_losses(self, batch: Batch) -> dict[str, Tensor]:
        """Labels on the main head, the teacher on the second."""
        assert batch.labels is not None
        assert batch.teacher_logits is not None
        tail: dict[str, Any] = {"reduction": batch.reduction, "num_items": batch.num_items}
        if batch.sample_weights is not None:
            tail["sample_weights"] = batch.sample_weights
        label = CrossEntropy()(batch.student_logits, None, batch.labels, **tail)
        divergence = _DIVERGENCES[self.divergence](self.temperature)
        distillation = divergence(self._auxiliary_logits(batch), batch.teacher_logits, batch.labels, **tail)
        return {"label": self.ce_weight * label, "distillation": self._weight(batch) * distillation}

    def _weight(self, batch: Batch) -> float:
        chosen = self._chosen
        if not chosen.cutoff:
            return chosen.alpha
        assert batch.epoch is not None
        assert batch.num_epochs is not None
        return 0.0 if batch.epoch >= chosen.cutoff * batch.num_epochs else chosen.alpha

    def _auxiliary_logits(self, batch: Batch) -> Tensor:
        """The second head on valid rows alone: an ignored row must not reach the head's batch statistics."""
        assert batch.features is not None
        assert batch.labels is not None
        features, shape = batch.features, batch.student_logits.shape
        if len(shape) != 2:
            raise ValueError(f"student_logits: expected (N, K) for the two heads of DHKD, got {tuple(shape)}")
        if features.ndim != 2 or len(features) != shape[0]:
            raise ValueError(f"features: expected ({shape[0]}, D) beside the logits, got {tuple(features.shape)}")
        if self._head is None:
            self._head = auxiliary_head(self._chosen.head, features.shape[1], shape[1])
            self._head.to(features.device, computation_dtype(features))
        counts = class_indices(batch.labels) != IGNORE_INDEX
        if batch.sample_weights is not None:
            counts = counts & (batch.sample_weights != 0)
        valid = counts.nonzero().squeeze(-1)
        if len(valid) == 0:
            return features[valid].sum().expand(shape)
        dtype = next(self._head.parameters()).dtype
        if len(valid) < self.min_rows and self._head.training:
            raise ValueError(
                "labels: expected at least two valid rows in a batch, got one: DHKD's nonlinear head normalises over "
                "them; use larger micro-batches or head='linear'"
            )
        logits: Tensor = self._head(features[valid].to(dtype))
        return logits.new_zeros(shape[0], logits.shape[1]).index_copy(0, valid, logits)

    def combine(self, gradients: Mapping[str, Tensor], values: Mapping[str, Tensor] | None = None) -> Tensor:
        """The aligned sum of the two gradients, or their plain sum."""
        if not self.align:
            return super().combine(gradients, values)
        return align_gradients(gradients["label"], gradients["distillation"])

    def modules(self) -> dict[str, nn.Module]:
        """The auxiliary head; inference ignores it."""
        if self._head is None:
            raise RuntimeError(
                "the second head of DHKD is built at the first batch: pass feature_size and num_classes to have it now"
            )
        return {"head": self._head}

    def state_dict(self) -> dict[str, Any]:
        """The auxiliary head; empty before it is built."""
        if self._head is None:
            return {}
        return {f"head.{name}": value for name, value in self._head.state_dict().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the head back, building it with the sizes of the saved one where there is none yet."""
        weights = {name.removeprefix("head."): value for name, value in state.items()}
        if not weights:
            return
        first, last = ("weight", "weight") if self.head == "linear" else ("0.weight", "4.weight")
        if first not in weights or last not in weights:
            raise ValueError(f"state: expected the weights of a {self.head} head, got {', '.join(sorted(state))}")
        if self._head is None:
            self._head = auxiliary_head(self._chosen.head, weights[first].shape[1], weights[last].shape[0])
            self._head.to(weights[first].device, weights[first].dtype)
        self._head.load_state_dict(weights)
