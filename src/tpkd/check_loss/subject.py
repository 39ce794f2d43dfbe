"""What every check stands on: the inputs, one evaluation of a loss, what was claimed about it, and a finding."""

import shlex
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tpkd.check_loss.record import FAIL, NOT_APPLICABLE, NOTE, PASS, LossFinding
from tpkd.check_loss.target import Loss, first_line

TOLERANCE = 1e-5
"""Relative, for float64 inputs: no structural fault is smaller, and a loss that computes in float32 is within it."""
CLASSES, SAMPLES = 5, 8
INPUTS = (
    "g=torch.Generator().manual_seed(0); "
    "s,t,u=2*torch.randn(3,8,5,generator=g,dtype=torch.float64); y=torch.arange(8)%5"
)
"""`ordinary_scene` as a statement, with a second teacher u."""


class RefusedError(Exception):
    """The loss raised an error, or returned what is not a loss."""


class NoGraphError(RefusedError):
    """The result does not depend on the student as far as autograd knows."""


@dataclass(frozen=True)
class Scene:
    """One batch: logits with the classes on the second axis, and integer labels."""

    student: Float[Tensor, "N K ..."]
    teacher: Float[Tensor, "N K ..."]
    labels: Int[Tensor, "N ..."]

    def rows(self, index: Any) -> "Scene":
        """Some of the samples."""
        return Scene(self.student[index], self.teacher[index], self.labels[index])

    def map(self, function: Callable[[Tensor], Tensor]) -> "Scene":
        """Apply a function to both logits."""
        return replace(self, student=function(self.student), teacher=function(self.teacher))


def ordinary_scene(teacher: int = 0, samples: int = SAMPLES, classes: int = CLASSES) -> Scene:
    """Logits of two standard deviations in float64 with one of two teachers; every class is a label.

    Example:
        >>> ordinary_scene().student.shape, ordinary_scene().labels
        (torch.Size([8, 5]), tensor([0, 1, 2, 3, 4, 0, 1, 2]))
    """
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(3, samples, classes, generator=generator, dtype=torch.float64)
    return Scene(logits[0], logits[1 + teacher], torch.arange(samples) % classes)


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


def evaluate(
    loss: Loss,
    scene: Scene,
    *,
    axis: int = 1,
    seed: int = 0,
    made: Any = None,
    factor: float = 1.0,
    **changes: Any,
) -> Evaluation:
    """Value, and gradient of `factor` times the value; whatever the loss raises becomes `RefusedError`.

    `axis` is that of the classes, `made` an instance to use again, `changes` are settings by role.
    """
    leaves = scene.map(lambda logits: logits.detach().clone().requires_grad_())
    # Products, because in a training loop logits are no leaves, and a loss may write into what is none.
    given = Scene(1 * leaves.student, 1 * leaves.teacher, scene.labels.clone())
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        output = call(loss, given, axis=axis, made=made, **changes)
        if not output.requires_grad:
            raise NoGraphError("returned a constant: backward() would raise")
        try:
            sources = (leaves.student, leaves.teacher)
            student, teacher = torch.autograd.grad(factor * output.sum(), sources, allow_unused=True)
        except Exception as error:  # a backward pass of somebody else
            raise RefusedError(f"backward: {type(error).__name__}: {first_line(error)}") from error
    return Evaluation(output.detach(), torch.zeros_like(leaves.student) if student is None else student, teacher)


def call(loss: Loss, scene: Scene, **options: Any) -> Tensor:
    """What the loss returns for these very tensors; an error, or no floating tensor, becomes `RefusedError`."""
    tensors = {"student": scene.student, "teacher": scene.teacher, "labels": scene.labels}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            output = loss(tensors, **options)
        except Exception as error:  # somebody else's code
            raise RefusedError(f"{type(error).__name__}: {first_line(error)}") from error
    if not isinstance(output, Tensor) or not output.is_floating_point():
        keys = f" with {', '.join(map(str, output))}" if isinstance(output, dict) else ""
        raise RefusedError(f"returned {type(output).__name__}{keys}, not a floating tensor; choose one with --output")
    return output


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
    """The teacher's term, a name in `check_loss_meaning.DIVERGENCES`."""
    dense: bool = False
    """Whether it is meant for several positions a sample."""
    batchwise: bool = False
    """Whether it is no sum over samples by design."""
    prescribed: bool = False
    """Whether its gradient is no derivative by design."""


@dataclass(frozen=True)
class Subject:
    """A loss under examination with the facts that several checks need."""

    loss: Loss
    claims: Claims = field(default_factory=Claims)

    def evaluate(self, scene: Scene, **changes: Any) -> Evaluation:
        """See `evaluate`."""
        return evaluate(self.loss, scene, **changes)

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
        """`mean`, `sum`, `none` (one number a sample), `elements` (one number a logit) or `unknown`, by experiment."""
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

    def sample_gradients(self, evaluation: Evaluation) -> Tensor:
        """The gradient of each sample's own loss: a mean over the batch undone."""
        return evaluation.gradient * (len(evaluation.gradient) if self.reduction == "mean" else 1)

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
    def ignore_index(self) -> int | None:
        """The label that marks a position to leave out, where the loss or the user promises one."""
        if self.claims.ignore_index is not None:
            return self.claims.ignore_index
        if not self.loss.has("ignore_index") or not self.loss.has("labels"):
            return None
        found = self.loss.settings.get(str(self.loss.names["ignore_index"]), self.loss.defaults.get("ignore_index"))
        return found if isinstance(found, int) else -100

    def command(self, *statements: str, inputs: str = INPUTS) -> str:
        """A shell command that runs the statements after the imports and the inputs."""
        return f"python -c {shlex.quote('; '.join(['import torch', self.loss.statement, inputs, *statements]))}"

    def gradient_text(self, student: str = "s", teacher: str = "t", labels: str = "y", **changes: Any) -> str:
        """The gradient with respect to s as Python text; s must require one."""
        call = self.loss.text(student=f"1*{student}", teacher=teacher, labels=labels, **changes)
        return f"torch.autograd.grad({call}.sum(),s)[0]"


def show(found: str, expected: str) -> str:
    """The last statement of a reproduction: what is, and what should be."""
    return f'print("found",{found},"expected",{expected})'


def close(found: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Whether two tensors agree relative to the larger one; NaN agrees with nothing."""
    size = max(float(found.abs().max()), float(expected.abs().max()), 1e-30)
    return bool((found.double() - expected.double()).abs().max() <= tolerance * size)


def scale_between(found: Tensor, expected: Tensor) -> float | None:
    """The factor c with found = c * expected, or None where there is none.

    Example:
        >>> scale_between(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 4.0]))
        0.5
        >>> scale_between(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])) is None
        True
    """
    a, b = found.double().reshape(-1), expected.double().reshape(-1)
    if not bool(b.abs().max() > 0):
        return None
    factor = float(a @ b / (b @ b))
    return factor if close(a, factor * b) else None


def passed(name: str, finding: str) -> LossFinding:
    """The loss does it right."""
    return LossFinding(name, PASS, finding)


def failed(name: str, finding: str, reproduction: str) -> LossFinding:
    """A fault, with the command that shows it."""
    return LossFinding(name, FAIL, finding, reproduction)


def noted(name: str, finding: str) -> LossFinding:
    """A choice that a user should know of."""
    return LossFinding(name, NOTE, finding)


def not_applicable(name: str, finding: str) -> LossFinding:
    """Nothing to examine."""
    return LossFinding(name, NOT_APPLICABLE, finding)
