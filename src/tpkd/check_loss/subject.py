"""The basis of every check: one evaluation of a loss, what was claimed about it, and what is known of it."""

import shlex
import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from tpkd.check_loss.scene import CLASSES, INPUTS, SAMPLES, TOLERANCE, Scene, close, ordinary_scene, scale_between
from tpkd.check_loss.target import Loss, first_line


class RefusedError(Exception):
    """The loss raised an error, or returned what is not a loss."""


class NoGraphError(RefusedError):
    """The result does not depend on the student as far as autograd knows."""


@dataclass(frozen=True)
class Evaluation:
    """What a loss returned, and the gradient of its sum with respect to the student's logits."""

    output: Tensor
    gradient: Tensor
    teacher_gradient: Tensor | None

    @property
    def total(self) -> float:
        """The sum of what it returned."""
        return float(self.output.double().sum())

    def same_bits(self, other: "Evaluation") -> bool:
        """Whether value and gradient are equal."""
        return torch.equal(self.output, other.output) and torch.equal(self.gradient, other.gradient)

    @property
    def finite(self) -> bool:
        """Whether value and gradient are numbers."""
        return bool(self.output.isfinite().all()) and bool(self.gradient.isfinite().all())


CLAIMED_REDUCTIONS = ("mean", "sum", "none", "elements")


@dataclass(frozen=True)
class Claims:
    """What the user says about the loss; a claim turns a choice into something to pass or fail."""

    reduction: str | None = None
    """One of `CLAIMED_REDUCTIONS`; `elements` is a mean over classes too."""
    t_squared: bool = True
    """Whether the loss multiplies by the temperature squared, where it takes one."""
    ignore_index: int | None = None
    """The label that leaves a position out."""
    divergence: str | None = None
    """The teacher's term, a name in `check_loss.meaning.DIVERGENCES`."""
    dense: bool = False
    """Whether it is meant for several positions per sample."""
    batchwise: bool = False
    """Whether it is deliberately not a sum over samples."""
    prescribed: bool = False
    """Whether its gradient is deliberately not the derivative."""


@dataclass(frozen=True)
class Subject:
    """A loss under examination with the facts that several checks need."""

    loss: Loss
    claims: Claims = field(default_factory=Claims)

    def evaluate(
        self, scene: Scene, *, axis: int = 1, seed: int = 0, made: Any = None, factor: float = 1.0, **changes: Any
    ) -> Evaluation:
        """Value, and gradient of `factor` times the value; whatever the loss raises becomes `RefusedError`.

        `axis` is that of the classes, `made` an instance to use again, `changes` are settings by role.
        """
        leaves = scene.map(lambda logits: logits.detach().clone().requires_grad_())
        # Products, because logits are not leaves in a training loop, and only a non-leaf can be written in place.
        given = Scene(1 * leaves.student, 1 * leaves.teacher, scene.labels.clone())
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            output = self.call(given, axis=axis, made=made, **changes)
            if not output.requires_grad:
                raise NoGraphError("returned a constant: backward() would raise")
            try:
                sources = (leaves.student, leaves.teacher)
                student, teacher = torch.autograd.grad(factor * output.sum(), sources, allow_unused=True)
            except Exception as error:  # third-party backward pass
                raise RefusedError(f"backward: {type(error).__name__}: {first_line(error)}") from error
        return Evaluation(output.detach(), torch.zeros_like(leaves.student) if student is None else student, teacher)

    def call(self, scene: Scene, **options: Any) -> Tensor:
        """What the loss returns for these very tensors; an error, or no floating tensor, becomes `RefusedError`."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                output = self.loss(vars(scene), **options)
            except Exception as error:  # third-party code
                raise RefusedError(f"{type(error).__name__}: {first_line(error)}") from error
        if not isinstance(output, Tensor) or not output.is_floating_point():
            keys = f" with {', '.join(map(str, output))}" if isinstance(output, dict) else ""
            found = f"returned {type(output).__name__}{keys}, not a floating tensor"
            raise RefusedError(f"{found}; choose one with --output")
        return output

    @cached_property
    def ordinary(self) -> Evaluation:
        """The loss on ordinary inputs in float64."""
        return self.evaluate(ordinary_scene())

    @cached_property
    def memory(self) -> str:
        """Why the same batch gives another result again; empty where it does not."""
        made, scene = self.loss.make(), ordinary_scene()
        first, again, other = (self.evaluate(scene, made=made, seed=seed) for seed in (0, 0, 1))
        if not first.same_bits(again):
            return "remembers earlier batches: the same batch again gives another result"
        return "" if first.same_bits(other) else "draws random numbers: the same batch gives another result"

    @cached_property
    def reduction(self) -> str:
        """`mean`, `sum`, `none` (one per sample), `elements` (one per logit) or `unknown`, by experiment."""
        shape = tuple(self.ordinary.output.shape)
        if shape in ((SAMPLES,), (SAMPLES, CLASSES)):
            return "none" if len(shape) == 1 else "elements"
        twice = self.evaluate(ordinary_scene().rows(torch.arange(SAMPLES).repeat(2)))
        ratio = scale_between(twice.gradient[:SAMPLES], self.ordinary.gradient)
        value = twice.total / self.ordinary.total if self.ordinary.total else float("nan")
        if ratio is None or shape not in ((), (1,)):
            return "unknown"
        if abs(ratio - 0.5) < TOLERANCE and not abs(value - 1) > TOLERANCE:
            return "mean"
        return "sum" if abs(ratio - 1) < TOLERANCE and not abs(value - 2) > TOLERANCE else "unknown"

    @cached_property
    def uses_labels(self) -> bool:
        """Whether other labels give another gradient."""
        if not self.loss.has("labels"):
            return False
        scene = ordinary_scene()
        other = self.evaluate(replace(scene, labels=(scene.labels + 1) % CLASSES))
        return not close(other.gradient, self.ordinary.gradient)

    def teacher_difference(self, scene: Scene | None = None, other: Scene | None = None, **changes: Any) -> Tensor:
        """Gradient under one teacher minus that under another: the label term cancels, the teacher's remains."""
        first = self.evaluate(scene or ordinary_scene(), **changes)
        second = self.evaluate(other or ordinary_scene(teacher=1), **changes)
        return first.gradient - second.gradient

    @cached_property
    def uses_teacher(self) -> bool:
        """Whether another teacher gives another gradient."""
        size = float(self.ordinary.gradient.abs().max())
        return self.loss.has("teacher") and float(self.teacher_difference().abs().max()) > TOLERANCE * size

    @cached_property
    def mask(self) -> int | None:
        """The label that marks a position to leave out, where the loss or the user promises one."""
        if self.claims.ignore_index is not None:
            return self.claims.ignore_index
        if not self.loss.has("ignore_index") or not self.loss.has("labels"):
            return None
        found = self.loss.setting("ignore_index")
        return found if isinstance(found, int) else -100

    def command(self, *statements: str, show: tuple[str, str] | None = None, inputs: str = INPUTS) -> str:
        """A shell command that runs the statements after the imports and the inputs.

        `show` is what it prints in the end: the expression that was found, and what is expected instead.
        """
        if show is not None:
            statements += (f'print("found",{show[0]},"expected",{show[1]})',)
        return f"python -c {shlex.quote('; '.join(['import torch', self.loss.statement, inputs, *statements]))}"

    def value_text(self, student: str = "s", teacher: str = "t", labels: str = "y", **changes: Any) -> str:
        """The sum of what the loss returns as Python text."""
        return f"{self.loss.text(student, teacher, labels, **changes)}.sum().item()"

    def gradient_text(self, student: str = "s", teacher: str = "t", labels: str = "y", **changes: Any) -> str:
        """The gradient with respect to s as Python text; s must require one."""
        call = self.loss.text(student=f"1*{student}", teacher=teacher, labels=labels, **changes)
        return f"torch.autograd.grad({call}.sum(),s)[0]"

    def difference_text(self, logits: str = "{}", **changes: Any) -> str:
        """`teacher_difference` as Python text; `logits` is the template that replaces each of s, t and u."""
        ours, others = (self.gradient_text(logits.format("s"), logits.format(u), **changes) for u in "tu")
        return f"({ours}-{others})"

    def finite_command(self, cast: str = "", inputs: str = INPUTS) -> str:
        """A command that shows a value or a gradient that is not finite."""
        found = f"v.item(),torch.autograd.grad(v,s)[0]{cast}.sum().item()"
        value = f"v={self.loss.text(student='1*s')}.sum()"
        return self.command("s.requires_grad_()", value, show=(found, '"finite numbers"'), inputs=inputs)
