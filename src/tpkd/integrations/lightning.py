"""Lightning: a `LightningModule` with a teacher that no checkpoint sees, and the monitor as a callback.

Lightning divides every loss by `accumulate_grad_batches`, and DDP averages over processes: a mean of means, which is
not the mean over valid positions once masks, batches or the last window of an epoch are uneven. Here `training_step`
returns the mean over its own valid positions, which is the number to log, and `backward` weights it by its
share of the whole effective batch, so that the gradient of a step is that of the mean over all its valid positions.
"""

from typing import Any, Self

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from tpkd.errors import InputError, extra
from tpkd.geometry.top_k import TopK
from tpkd.integrations.classes import check_classes
from tpkd.integrations.common import (
    LOGITS_AND_LABELS,
    MonitorMeans,
    TeacherLike,
    choose_objective,
    choose_teacher,
    move_logits,
    total_loss,
)
from tpkd.integrations.labels import FirstLook, valid_positions
from tpkd.objectives.base import Batch, Objective
from tpkd.teacher.teacher import OnlineTeacher, Teacher

with extra("lightning"):
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy


class DistillationModule(LightningModule):
    """A `LightningModule` that learns from a teacher: the base class, or a mix-in in front of another one.

    The teacher is kept outside the module tree. `fit` does not set it to train mode, no optimiser, DDP wrapper or
    checkpoint holds it, and it follows the module to its device and precision. A module that is loaded or resumed from
    a checkpoint is given its teacher again by `distill_from`. It runs on one device or under DDP; strategies that
    shard gradients are refused.

    Example:
        >>> class Student(DistillationModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.net = nn.Linear(4, 3)
        ...
        ...     def training_step(self, batch, batch_idx):
        ...         inputs, labels = batch
        ...         return self.distillation_loss(self.net(inputs), labels, inputs=inputs)
        ...
        ...     def configure_optimizers(self):
        ...         return torch.optim.SGD(self.parameters(), lr=0.1)
        >>> student = Student().distill_from(nn.Linear(4, 3), "tpkd", beta=0.5)
        >>> student.training_step((torch.zeros(2, 4), torch.tensor([0, 2])), 0).requires_grad
        True
        >>> sorted(student.state_dict())
        ['net.bias', 'net.weight']
    """

    _teacher: Teacher | None = None
    _objective: Objective | None = None
    _prepared_for: tuple[torch.device, int] | None = None
    _count: Tensor | None = None
    """Valid positions of the loss that is about to be backpropagated."""
    _accumulated: Tensor | None = None
    """Valid positions whose mean the gradients hold; None between steps."""
    _look: FirstLook | None = None
    seen: tuple[Tensor, Tensor | TopK, Tensor] | None = None
    """Student logits, teacher logits and labels of the last training step, without a graph, for who watches."""

    def distill_from(self, teacher: TeacherLike | None, objective: str | Objective = "tpkd", **settings: Any) -> Self:
        """Choose the teacher and the objective; returns the module itself.

        Args:
            teacher: a network, which is frozen in place; or a teacher cache, whole or truncated, or its directory; None
                for plain `"ce"`.
            objective: a name of `tpkd.objectives.names()` that needs logits, labels and epochs alone, or an objective.
            **settings: of the objective, where it is given by name.

        Raises:
            InputError: the objective needs more than Lightning or this number of classes gives, or all classes of a
                teacher whose cache is truncated; the teacher is a part of this module, or both say which classes they
                have and these differ. A module says it by an attribute `num_classes` or `class_names`, or as
                transformers and timm do.

        Example:
            >>> DistillationModule().distill_from(nn.Linear(4, 3), "dto-kd")  # doctest: +ELLIPSIS
            Traceback (most recent call last):
                ...
            tpkd.errors.InputError: objective 'dto-kd' needs objective_gradients, post_step, which Lightning ...
        """
        gives = LOGITS_AND_LABELS | {"epoch"}
        has_teacher = teacher is not None
        chosen = choose_objective(objective, settings, host="Lightning", has_teacher=has_teacher, gives=gives)
        if isinstance(teacher, nn.Module):
            _refuse_inside(self, teacher)
        self._teacher = choose_teacher(teacher, self, chosen)
        self._objective, self._prepared_for, self._look = chosen, None, FirstLook()
        self._check_classes()
        return self

    def distillation_loss(
        self,
        student_logits: Float[Tensor, "N K *positions"],
        labels: Shaped[Tensor, "..."],
        *,
        inputs: Any = None,
        sample_ids: Int[Tensor, "N"] | None = None,
        view_ids: Int[Tensor, "N"] | None = None,
    ) -> Float[Tensor, ""]:
        """The objective's mean over the valid positions of this batch, in place of `F.cross_entropy`.

        Call it once per training step: its valid positions are the share of the step in the effective batch.

        Args:
            student_logits: what `F.cross_entropy` takes.
            labels: integer classes `(N, *positions)`, -100 where a position is ignored; or probabilities of the shape
                of the logits, as those of mixup, all zero where a position is ignored, for objectives that take them.
            inputs: what a teacher network is called with: a tensor, or several in a tuple or dict.
            sample_ids: which rows of a teacher cache; they come with the batch, from the data set.
            view_ids: which views; left out where every sample has one.

        Raises:
            ValueError: there is no teacher yet, or neither inputs nor sample ids for it; soft labels are not
                probabilities; or labels are not those that a truncated cache was built with.

        Example:
            >>> inputs, labels = torch.zeros(2, 4), torch.tensor([0, -100])
            >>> student = DistillationModule().distill_from(nn.Linear(4, 3))
            >>> student.distillation_loss(torch.zeros(2, 3, requires_grad=True), labels, inputs=inputs).shape
            torch.Size([])
        """
        objective, look = self._objective, self._look
        if objective is None or look is None:
            raise InputError("teacher: expected one before the first step, got none: call distill_from(teacher)")
        self._prepare()
        teacher_logits = None
        if self._teacher is not None:
            answers = self._teacher.answer(inputs, sample_ids, view_ids).logits
            teacher_logits = move_logits(answers, student_logits.device)
        look(objective, student_logits, labels, teacher_logits, class_axis=1)
        batch = Batch(
            student_logits=student_logits,
            labels=labels,
            teacher_logits=teacher_logits,
            epoch=self.current_epoch + 1,
        )
        loss = total_loss(objective, batch)
        if torch.is_grad_enabled():  # a loss of validation is not a part of any step
            self._count = valid_positions(labels, class_axis=1).sum()
            self.seen = None if teacher_logits is None else (student_logits.detach(), teacher_logits, labels)
        return loss

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Backpropagate the loss with its share of the valid positions of all micro-batches and processes.

        Under manual optimisation a loss is taken as it comes.
        """
        trainer = self._trainer
        if trainer is not None and self.automatic_optimization:
            loss = self._weigh(loss, trainer)
        super().backward(loss, *args, **kwargs)

    def _weigh(self, loss: Tensor, trainer: Trainer) -> Tensor:
        """Turn Lightning's part of a mean of means into a part of one mean, whatever the gradients hold already."""
        parts, processes = trainer.accumulate_grad_batches, trainer.world_size
        if parts * processes == 1:
            return loss
        count, self._count = self._count, None
        if count is None:
            raise InputError(
                "training_step: expected a loss of distillation_loss, got another, whose share of the effective batch "
                "is unknown; for plain cross-entropy use distill_from(None, 'ce')"
            )
        count = count.to(torch.promote_types(loss.dtype, torch.float32))  # a share is as exact as its loss
        before = None if trainer.fit_loop.batch_idx % parts == 0 else self._accumulated
        whole = count if before is None else before + count
        if trainer.fit_loop._should_accumulate():
            self._accumulated = whole
        else:
            # Until here the gradients are the mean of this process alone; with the last part DDP averages them.
            self._accumulated = None
            whole = trainer.strategy.reduce(whole.clone(), reduce_op="sum") / processes
        whole = whole.clamp(min=1 / processes)
        if before is not None:
            for parameter in self.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(before / whole)
        return loss * (parts * count / whole)

    def _check_classes(self) -> None:
        """Compare what the module, its teacher and the data of its trainer say of their classes, if anything."""
        assert self._objective is not None
        loader = None if self._trainer is None else getattr(self._trainer, "train_dataloader", None)
        check_classes(
            self._objective,
            ("the student", self),
            ("teacher", self._teacher and self._teacher.about),
            ("train_dataloader", getattr(loader, "dataset", None)),
            way_out="bring all into one order, and give classes that mean the same one name",
        )

    def _prepare(self) -> None:
        """Once a run, when device, precision and strategy are known: place the teacher, refuse what would go wrong."""
        trainer = self._trainer
        if self._prepared_for == (self.device, id(trainer)):
            return
        if trainer is not None and not isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy):
            raise InputError(
                f"strategy: expected one device or DDP, got {type(trainer.strategy).__name__}, which keeps gradients "
                "where they cannot be weighed by valid positions"
            )
        self._check_classes()
        if isinstance(self._teacher, OnlineTeacher):
            _refuse_inside(self, self._teacher.model)
            with torch.inference_mode(False):  # a validation that comes first would leave parameters of no further use
                if trainer is not None:
                    trainer.precision_plugin.convert_module(self._teacher.model)
                self._teacher.to(self.device)
        self._prepared_for = (self.device, id(trainer))


def _refuse_inside(module: LightningModule, teacher: nn.Module) -> None:
    """Refuse a teacher that checkpoints would hold: as a part of the module, or among its hyperparameters."""
    name = next((name for name, each in module.named_modules() if each is teacher), None)
    if name is not None:
        raise InputError(
            f"teacher: expected a network outside of the module, got its own {name or 'self'}, which optimisers and "
            "checkpoints would hold: pass it to distill_from and keep no attribute of it"
        )
    name = next((name for name, each in module.hparams.items() if each is teacher), None)
    if name is not None:
        raise InputError(
            f"teacher: expected a network outside of the checkpoint, got the hyperparameter {name}: "
            f"call save_hyperparameters(ignore=[{name!r}])"
        )


class MonitorCallback(Callback):
    """Log what the teacher can still teach: blocked share, conditional loss, compensation, retention and more.

    The values are those of `tpkd.theory.observe`, over all micro-batches and processes of a step, from the logits that
    `distillation_loss` has anyway. They appear in Lightning's own log as `monitor/blocked_share` and so on.

    Example:
        >>> Trainer(callbacks=[MonitorCallback(every=10)], logger=False)  # doctest: +ELLIPSIS
        <lightning.pytorch.trainer.trainer.Trainer object at ...>
    """

    def __init__(self, every: int | None = None, *, prefix: str = "monitor/") -> None:
        """Look at one step in so many; by default at those that Lightning logs."""
        if every is not None and every < 1:
            raise InputError(f"every: expected at least 1, got {every}")
        self.every, self.prefix = every, prefix
        self._means = MonitorMeans()

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse a module that has nothing to look at."""
        if not isinstance(pl_module, DistillationModule):
            raise InputError(f"MonitorCallback: expected a DistillationModule, got {type(pl_module).__name__}")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Look at the batch if its step is one to look at, and log when that step is complete."""
        assert isinstance(pl_module, DistillationModule)
        accumulates = trainer.fit_loop._should_accumulate()
        step = trainer.global_step + accumulates
        every = self.every or trainer.log_every_n_steps  # type: ignore[attr-defined]
        seen, pl_module.seen = pl_module.seen, None
        if not every or step % every:
            return
        if seen is not None and pl_module._objective is not None:  # nothing is seen where a step returned nothing
            self._means.add(*seen, class_axis=1, temperature=pl_module._objective.step_temperature)
        if not accumulates:
            means = self._means.take(lambda sums: trainer.strategy.reduce(sums, reduce_op="sum"))
            pl_module.log_dict({f"{self.prefix}{name}": value for name, value in means.items()})
