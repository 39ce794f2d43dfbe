"""What a loss is given: ordinary inputs, also as a statement, and when two results count as the same."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

TOLERANCE = 1e-5
"""Relative, for float64 inputs: no structural fault is smaller, and a loss that computes in float32 is within it."""
CLASSES, SAMPLES = 5, 8


def input_text(classes: int = CLASSES) -> str:
    """`ordinary_scene` as statements, with a second teacher u."""
    size = f"3,{SAMPLES},{classes},generator=g,dtype=torch.float64"
    return f"g=torch.Generator().manual_seed(0); s,t,u=2*torch.randn({size}); y=torch.arange({SAMPLES})%{classes}"


INPUTS = input_text()


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


def ordinary_scene(teacher: int = 0, classes: int = CLASSES) -> Scene:
    """Logits of two standard deviations in float64 with one of two teachers; every class is a label.

    Example:
        >>> ordinary_scene().student.shape, ordinary_scene().labels
        (torch.Size([8, 5]), tensor([0, 1, 2, 3, 4, 0, 1, 2]))
    """
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(3, SAMPLES, classes, generator=generator, dtype=torch.float64)
    return Scene(logits[0], logits[1 + teacher], torch.arange(SAMPLES) % classes)


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
