"""What a training loop and an objective say to each other: a batch goes in, named losses come out."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from tpkd.geometry.averaging import average_conditionals, average_probabilities
from tpkd.geometry.inputs import check_positive
from tpkd.geometry.top_k import TopK
from tpkd.objectives.reduction import check_weight


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Everything an objective may ask for; a loop fills in what `Objective.needs` names and leaves the rest out."""

    student_logits: Tensor
    """`(N, K)` or `(N, K, d1, ...)`, attached to the student's graph."""
    labels: Tensor | None = None
    """Integer classes, the shape of the logits without `K`; or probabilities of the shape of the logits, for objectives
    that take soft labels (a row of zeros is ignored)."""
    teacher_logits: Tensor | TopK | None = None
    """Logits as the student's; or a truncated teacher `(N, d1, ...)`, for objectives that take one."""
    initial_logits: Tensor | None = None
    """Logits of the frozen copy of the student at initialisation, on the same inputs."""
    features: Tensor | None = None
    """Penultimate features `(N, D)` of the student, attached to its graph: the input of a second head."""
    layer_features: Sequence[Tensor] | None = None
    """Pooled features `(N, D_s)` of chosen student layers, attached to its graph."""
    teacher_layer_features: Sequence[Tensor] | None = None
    """Pooled features `(N, D_t)` of the matching teacher layers."""
    epoch: int | None = None
    """1-based, counted from samples consumed."""
    num_epochs: int | None = None
    num_items: float | Tensor | None = None
    """Valid positions of the whole effective batch, over all micro-batches and processes; with `sample_weights`, the
    sum of their weights."""
    sample_weights: Tensor | None = None
    """What each position's loss and gradient are multiplied by, the shape of the logits without `K`; for objectives
    that take them."""
    reduction: str = "mean"
    """`"none"` for one loss per position, if the objective is a sum over positions; then without `num_items`."""

    def __post_init__(self) -> None:
        """Refuse an epoch counted from 0: a warm-up would silently lag one epoch behind."""
        if self.epoch is not None and self.epoch < 1:
            raise ValueError(f"epoch: expected a count from 1, got {self.epoch}")


_NEVER_NEEDED = {"student_logits", "num_items", "sample_weights", "reduction"}
BATCH_NEEDS = frozenset(field.name for field in fields(Batch)) - _NEVER_NEEDED
LOOP_NEEDS = frozenset({"objective_gradients", "post_step"})
"""What a loop does rather than holds: one gradient a loss, and a second evaluation of the batch after the step."""

TeacherAverage = Literal["probabilities", "conditionals"]
"""What is averaged over several teachers: whole distributions, or those over incorrect classes."""


class PaperAccuracy(NamedTuple):
    """What the paper measured: mean and sample standard deviation in percent over three seeds, by domain."""

    vision: tuple[float, float]
    text: tuple[float, float]


class Objective(ABC):
    """One method of learning from labels and a teacher; one training loop runs all of them.

    A loop backpropagates the sum of `losses(batch)`. Where `needs` names `"objective_gradients"` it takes the gradient
    of each loss on its own, summed over the micro-batches of the effective batch and flattened over all parameters,
    and steps along `combine(gradients)`. Where `needs` names `"post_step"` it evaluates the same effective batch once
    more after the step, without gradients, and calls `after_step`.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    """The name in tables and charts."""
    summary: ClassVar[str]
    source: ClassVar[str]
    reconstruction: ClassVar[str] = ""
    """What no public source fixes and we had to choose; empty where nothing is."""
    settings_note: ClassVar[str] = ""
    """Whose settings the defaults are, and which others are worth a trial."""
    control: ClassVar[bool] = False
    """Whether it exists to explain another method, and is left out of the main table."""
    ablation: ClassVar[tuple[str, str] | None] = None
    """Condition and direction in the paper's ablation of TPKD, for methods that are a row there."""
    paper_accuracy: ClassVar[PaperAccuracy | None] = None
    takes_soft_labels: ClassVar[bool] = False
    """Whether labels may be probabilities, as those of mixup."""
    top_k_condition: ClassVar[str] = ""
    """What to set so that `takes_top_k`, where there is something."""
    average_condition: ClassVar[str] = ""
    """What to set so that there is a `teacher_average`, where there is something."""

    @property
    def takes_top_k(self) -> bool:
        """Whether the teacher may be truncated to its top classes, under these settings."""
        return False

    @property
    def teacher_average(self) -> TeacherAverage | None:
        """Which average of several teachers the objective learns from, under these settings; None where none fits."""
        return None

    @property
    def teacher_temperature(self) -> float:
        """The temperature at which the objective looks at its teacher, and so averages several; 1 without one."""
        return float(getattr(self, "temperature", 1.0))

    @property
    def step_temperature(self) -> float:
        """The temperature of the protected step, which a monitor observes; 1 unless the objective takes another."""
        return 1.0

    @property
    def takes_weights(self) -> bool:
        """Whether samples may have weights, under these settings: only a sum over positions can weigh them."""
        return False

    def __post_init__(self) -> None:
        """Refuse settings that no run should start with: a temperature, any `..._weight`, and what `check` refuses."""
        for name, value in vars(self).items():
            if name == "temperature":
                check_positive("temperature", value)
            elif name.endswith("_weight"):
                check_weight(name, value)
        self.check()

    def check(self) -> None:  # noqa: B027 (most have nothing else to check)
        """Refuse other settings, by a `ValueError` that names the setting, what was expected and what came."""

    @property
    @abstractmethod
    def needs(self) -> AbstractSet[str]:
        """Names of `Batch` fields, and of what the loop must do, that this objective cannot work without."""

    @property
    def separable(self) -> bool:
        """Whether the loss is a sum over samples, so that micro-batches and processes accumulate exactly."""
        return True

    @property
    def min_rows(self) -> int:
        """The fewest valid rows that a batch may have."""
        return 1

    @property
    def min_classes(self) -> int:
        """The fewest classes that the loss is defined for."""
        return 2

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """The losses of this batch by name, each reduced and with its own weight applied."""
        missing = [name for name in sorted(BATCH_NEEDS & self.needs) if getattr(batch, name) is None]
        if missing:
            raise ValueError(f"batch: objective {self.name!r} needs {', '.join(missing)}, got None")
        if batch.reduction != "mean" and not self.separable:
            problem = f"reduction: expected 'mean', got {batch.reduction!r}"
            raise ValueError(f"{problem}: objective {self.name!r} is not a sum over positions")
        if batch.sample_weights is not None and not self.takes_weights:
            reason = "does not take weights" if self.separable else "is not a sum over positions"
            raise ValueError(
                f"sample_weights: expected None, got a tensor: objective {self.name!r} {reason}; use another objective "
                "or leave weights out"
            )
        self.check_kinds(batch.teacher_logits, batch.labels)
        return self.compute_losses(batch)

    def check_kinds(self, teacher: object, labels: object) -> None:
        """Refuse soft labels or a truncated teacher by name where the objective is not defined for them."""
        name = getattr(self, "name", type(self).__name__)  # a part of a method has none
        if not self.takes_soft_labels and isinstance(labels, Tensor) and labels.is_floating_point():
            raise ValueError(
                f"labels: objective {name!r} takes integer classes, got {labels.dtype} of shape "
                f"{tuple(labels.shape)}; for soft labels, as those of mixup, use ce, kd, kl-dist, xe-kl or tpkd"
            )
        if not self.takes_top_k and isinstance(teacher, TopK):
            remedy = self.top_k_condition or "use a teacher with all classes, or tpkd, ce, or kd at temperature 1"
            raise ValueError(
                f"teacher_logits: objective {name!r} needs all classes, got a teacher truncated to its top "
                f"{teacher.k}: {remedy}"
            )

    def average_teachers(
        self, teacher_logits: Sequence[Tensor], labels: Tensor | None, weights: Sequence[float] | None = None
    ) -> Tensor:
        """What takes the place of one teacher's logits in a batch where there are several teachers.

        Args:
            teacher_logits: those of each teacher, `(N, K)` or `(N, K, d1, ...)`.
            labels: as in a batch; they are looked at where conditionals are averaged.
            weights: one positive number per teacher; equal by default.

        Raises:
            ValueError: several teachers have no average that this objective could learn from.

        Example:
            >>> from tpkd.objectives import create
            >>> teachers = torch.tensor([[0.98, 0.01, 0.01]]).log(), torch.tensor([[0.5, 0.4, 0.1]]).log()
            >>> create("tpkd").average_teachers(teachers, torch.tensor([0]))[:, 1:].softmax(-1)
            tensor([[0.6500, 0.3500]])
            >>> create("kd", temperature=1.0).average_teachers(teachers, torch.tensor([0]))[:, 1:].softmax(-1)
            tensor([[0.7885, 0.2115]])
        """
        if self.teacher_average is None:
            remedy = (
                self.average_condition or "use one teacher, or an objective that averages several, such as tpkd or kd"
            )
            raise ValueError(f"teacher_logits: objective {self.name!r} learns from one teacher, got several: {remedy}")
        last = [logits if logits.ndim == 1 else logits.movedim(1, -1) for logits in teacher_logits]
        if self.teacher_average == "probabilities":
            average = average_probabilities(last, weights=weights, temperature=self.teacher_temperature)
        else:
            if labels is None:
                raise ValueError(f"labels: objective {self.name!r} averages over incorrect classes, got None")
            soft = labels.is_floating_point() and labels.ndim > 1
            average = average_conditionals(
                last,
                labels.movedim(1, -1) if soft else labels,
                weights=weights,
                temperature=self.teacher_temperature,
            )
        return average if average.ndim == 1 else average.movedim(-1, 1)

    @abstractmethod
    def compute_losses(self, batch: Batch) -> dict[str, Tensor]:
        """What `losses` returns, of a batch that has all that is needed."""

    def combine(self, gradients: Mapping[str, Tensor], values: Mapping[str, Tensor] | None = None) -> Tensor:
        """One parameter gradient from the flattened gradient of each loss.

        `values` are the losses of the whole effective batch (summed over micro-batches and processes); left out, they
        are those seen by `losses` since the last call.
        """
        return torch.stack(list(gradients.values())).sum(0)

    def after_step(self, batch: Batch) -> None:  # noqa: B027 (most objectives do not need it)
        """See the effective batch evaluated again after the optimiser step."""

    def modules(self) -> dict[str, nn.Module]:
        """Networks of the objective's own, to be optimised and saved beside the student."""
        return {}

    def metrics(self, batch: Batch) -> dict[str, Tensor]:
        """Numbers worth a log line that are not losses."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run must get back, tensors and plain numbers only."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        if state:
            raise ValueError(f"state: objective {self.name!r} has none, got {', '.join(sorted(state))}")
