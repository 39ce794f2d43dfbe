"""A training task for timm: any objective that needs logits and labels, in the place of timm's `ClassificationTask`."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tpkd.errors import InputError, extra
from tpkd.geometry.inputs import can_read_values
from tpkd.integrations.classes import check_classes
from tpkd.integrations.common import choose_objective, total_loss
from tpkd.integrations.timm_criterion import check_criterion, check_mixing
from tpkd.integrations.timm_targets import as_soft_labels, check_set, check_targets, recover_labels
from tpkd.objectives.base import Batch, Objective
from tpkd.teacher.teacher import OnlineTeacher

with extra("vision"):
    from timm.task import DistillationTeacher, TrainingTask
    from timm.utils import unwrap_model

_logger = logging.getLogger(__name__)

MIXED = ("set", "sum")
"""What to make of a mixed image with two labels: one loss on the set of both, or the sum of two losses."""


class DistillationTask(TrainingTask):  # type: ignore[misc]  # timm is not there where types are checked
    """What timm's training loop calls instead of `ClassificationTask`, to learn from labels and a teacher.

    The teacher sees the images of the student, renormalised where the two expect different statistics. It is frozen
    and hidden: `train()`, optimisers, `prepare_distributed`, averaged copies and checkpoints meet the student alone.

    Mixed images have two labels a and b with weights w and 1 - w. By default (`mixed="set"`) they have one loss, with
    the soft label w e_a + (1 - w) e_b. TPKD then protects both labels against all other classes: no margin between a
    class that the label allows and one that it does not is worse than after the mixup step itself, which may lower
    some. `mixed="sum"` is w L(a) + (1 - w) L(b), the weighted sum of two losses with hard labels, for comparison and
    for objectives that take no soft labels: each part protects its own label, and their sum promises nothing about
    both. Smoothed labels are refused.

    The loss is the mean over the images of a call, so equal micro-batches and processes add up to the whole batch.

    Args:
        student_model: the network to train, where it is to be trained; not wrapped yet.
        teacher_model: a network, a timm name (with its pretrained weights), or timm's `DistillationTeacher`.
        objective: a name of `tpkd.objectives.names()` that needs logits and labels alone, or an objective.
        criterion: what the script would train with: `train_loss_fn` of timm's. Plain cross-entropy, of labels or of
            mixup's targets, is a part of the objective; any other loss would be dropped, and is refused.
        settings: of an objective given by name, as `{"beta": 1.0, "temperature": 4.0}`.
        mixed: `"set"` or `"sum"`, what to make of the soft targets of mixup and CutMix.
        teacher_pretrained_path: a file of weights for a teacher given by name.
        mean: what the loader subtracts from the images, by default what the student's `pretrained_cfg` says.
        std: what it divides them by.
        teacher_mean: what the teacher expects to be subtracted, by default what its own `pretrained_cfg` says; to be
            given for a teacher that was trained on images normalised otherwise.
        teacher_std: what it expects them to be divided by.
        device: of the teacher, by default the student's.
        dtype: of a teacher given by name, by default the student's.
        verbose: whether to log the objective, and how the teacher sees the images, when the task is built.

    Raises:
        InputError: timm cannot serve the objective, `criterion` is another loss than it replaces or says that images
            are mixed where the objective takes no soft labels, there are too few classes for it, the teacher has other
            classes or shares parameters with the student, or the normalisation of a network's images is unknown.

    Example:
        >>> import timm
        >>> student, teacher = (timm.create_model("test_resnet", num_classes=10) for _ in range(2))
        >>> task = DistillationTask(student, teacher, "tpkd", settings={"beta": 0.5})
        >>> result = task(torch.randn(2, 3, 32, 32), torch.tensor([3, 7]))
        >>> result["loss"].backward()
        >>> sorted(result), result["output"].shape
        (['loss', 'output', 'teacher_output'], torch.Size([2, 10]))
    """

    teacher_scale: Tensor
    teacher_shift: Tensor

    def __init__(
        self,
        student_model: nn.Module,
        teacher_model: "str | nn.Module | DistillationTeacher",
        objective: str | Objective = "tpkd",
        *,
        criterion: Callable[[Tensor, Tensor], Tensor] | None = None,
        settings: Mapping[str, Any] | None = None,
        mixed: str = "set",
        teacher_pretrained_path: str | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        teacher_mean: Sequence[float] | None = None,
        teacher_std: Sequence[float] | None = None,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
        verbose: bool = True,
    ) -> None:
        """Freeze the teacher, hide it, and compare what the two networks expect of an image."""
        weight = next(student_model.parameters())
        super().__init__(device=device or weight.device, dtype=dtype or weight.dtype, verbose=verbose)
        if mixed not in MIXED:
            raise InputError(f"mixed: expected {' or '.join(map(repr, MIXED))}, got {mixed!r}")
        check_criterion(criterion, objective)
        self.objective, self.mixed = choose_objective(objective, settings, host="timm"), mixed
        if mixed == "set":
            check_mixing(criterion, self.objective)
        self._looked_at_targets = False
        self.trainable_module = student_model
        student = unwrap_model(student_model)
        teacher = teacher_model
        if isinstance(teacher, str):
            known = {"num_classes": student.num_classes, "in_chans": student.in_chans}
            placed = {"device": self.device, "dtype": self.dtype}
            teacher = DistillationTeacher(teacher, pretrained_path=teacher_pretrained_path, **known, **placed).model
        elif isinstance(teacher, DistillationTeacher):
            teacher_mean = teacher.mean_kd.flatten().tolist() if teacher_mean is None else teacher_mean
            teacher_std = teacher.std_kd.flatten().tolist() if teacher_std is None else teacher_std
            teacher = teacher.model
        check_classes(
            self.objective,
            ("student_model.pretrained_cfg", student),
            ("teacher_model.pretrained_cfg", unwrap_model(teacher)),
            way_out="bring both into one order, or remove label_names where they no longer say what the outputs are",
        )
        seen = _statistics(student, mean, std, prefix="")
        expected = _statistics(unwrap_model(teacher), teacher_mean, teacher_std, prefix="teacher_")
        self._teacher = OnlineTeacher(teacher, student=student).to(self.device)
        scale, shift = seen[1] / expected[1], (seen[0] - expected[0]) / expected[1]
        # Not bit by bit: timm's teacher keeps its statistics in single precision.
        self._renormalises = not torch.allclose(seen, expected)
        # As timm keeps its own statistics: moved with the task, never saved.
        for name, values in (("teacher_scale", scale), ("teacher_shift", shift)):
            self.register_buffer(name, values.view(-1, 1, 1).to(self.device, self.dtype), persistent=False)
        if self.verbose:
            images = "renormalised for the teacher" if self._renormalises else "the same for student and teacher"
            _logger.info("DistillationTask: objective=%s, images %s", self.objective, images)
            if criterion is None:
                _logger.info(
                    "DistillationTask: label smoothing or another loss of the script would be dropped: pass criterion="
                )

    def forward(self, input: Float[Tensor, "N C H W"], target: Tensor) -> dict[str, Tensor]:
        """One batch: the loss to differentiate, and what student and teacher say.

        Args:
            input: images, normalised for the student.
            target: classes `(N,)`, or the soft targets `(N, K)` of timm's mixup and CutMix.

        Returns:
            `loss`, the mean over the images; `output` and `teacher_output`, the logits of both.
        """
        student_logits = self.trainable_module(input)
        teacher_logits = self._teacher(self._for_teacher(input))
        batch = Batch(student_logits=student_logits, teacher_logits=teacher_logits)
        if target.ndim == 1:
            loss = total_loss(self.objective, replace(batch, labels=target))
        else:
            loss = self._set_loss(batch, target) if self.mixed == "set" else self._summed_loss(batch, target)
        return {"loss": loss, "output": student_logits, "teacher_output": teacher_logits}

    def _for_teacher(self, images: Tensor) -> Tensor:
        if not self._renormalises:
            return images
        channels = len(self.teacher_scale)
        if channels not in (1, images.shape[1]):
            raise InputError(
                f"mean, std: expected one number per channel of the images, {images.shape[1]}, got {channels}: give "
                "mean, std, teacher_mean and teacher_std"
            )
        return images * self.teacher_scale + self.teacher_shift

    def _set_loss(self, batch: Batch, targets: Float[Tensor, "N K"]) -> Tensor:
        # Smoothing shows in any batch, and looking at each would stall an accelerator.
        if not self._looked_at_targets or can_read_values(targets):
            check_targets(targets)
            check_set(self.objective, targets)
            self._looked_at_targets = True
        return total_loss(self.objective, replace(batch, labels=as_soft_labels(targets)))

    def _summed_loss(self, batch: Batch, targets: Float[Tensor, "N K"]) -> Tensor:
        mixed = recover_labels(targets)
        rows = (replace(batch, labels=labels, reduction="none") for labels in mixed.labels)
        losses = torch.stack([total_loss(self.objective, each) for each in rows])
        return (mixed.weights.to(losses) * losses).sum() / (mixed.weights[0] > 0).sum().clamp(min=1)

    def prepare_distributed(self, device_ids: list[Any] | None = None, **ddp_kwargs: Any) -> "DistillationTask":
        """Wrap the student for several processes; every process keeps a teacher of its own."""
        self.trainable_module = DistributedDataParallel(self.trainable_module, device_ids=device_ids, **ddp_kwargs)
        return self

    def compile(self, backend: str = "inductor", mode: str | None = None, **compile_kwargs: Any) -> nn.Module:
        """Compile the student, for training and evaluation, and the teacher; before `prepare_distributed`."""
        self._teacher.model.compile(backend=backend, mode=mode, **compile_kwargs)
        compiled: Any = torch.compile(self.trainable_module, backend=backend, mode=mode, **compile_kwargs)
        self.trainable_module = self.eval_model = compiled
        return self.trainable_module

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "DistillationTask":
        # The teacher is not a submodule, but must follow the student to its device.
        self._teacher.model._apply(fn, recurse)  # type: ignore[no-untyped-call]
        super()._apply(fn, recurse)
        return self


def _statistics(
    model: nn.Module, mean: Sequence[float] | None, std: Sequence[float] | None, *, prefix: str
) -> Float[Tensor, "2 channels"]:
    """What a network's images are normalised with, as given or as its configuration says."""
    config = getattr(model, "pretrained_cfg", None) or {}
    found = {"mean": config.get("mean") if mean is None else mean, "std": config.get("std") if std is None else std}
    for name, values in found.items():
        if values is None:
            raise InputError(
                f"{prefix}{name}: expected one number per channel, because {type(model).__name__} has no "
                "pretrained_cfg with the statistics of its images; give both networks the same if they see the same"
            )
    numbers = (torch.tensor(values, dtype=torch.float64) for values in found.values())
    return torch.stack(torch.broadcast_tensors(*numbers))  # type: ignore[no-untyped-call]
