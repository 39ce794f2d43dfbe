"""What the illustrations are drawn from."""

from dataclasses import dataclass
from typing import Any

from tpkd.record import Record


@dataclass(frozen=True)
class Curve:
    """Points of a line."""

    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class FeasibilityIllustration:
    """The three-class example of section 4: where exact transfer is safe, and what happens on the way."""

    student: tuple[float, ...]
    teacher: tuple[float, ...]
    numbers: dict[str, float]
    """The worked numbers of appendices A.4 and A.6."""
    endpoint: tuple[float, ...]
    """p*, the probabilities at the end of the path."""
    ce_only_optimum: tuple[float, ...]
    """The closest imitation when only the label loss is protected."""
    boundary: Curve
    """The least safe rise in log-odds over the conditional probability of class 3."""
    path: Curve
    label_loss: Curve
    """Over the position on the path, divided by the value at its start; so are the next two."""
    conditional_loss: Curve
    imitation_loss: Curve


@dataclass(frozen=True)
class GeometryIllustration:
    """The four-class example of appendix B.5: what protection makes of a conditional direction."""

    conditional: tuple[float, ...]
    safe: tuple[float, ...]
    pure_conditional: tuple[float, ...]
    numbers: dict[str, float]
    oblique: dict[str, tuple[float, ...]]
    """Screen coordinates of u, d, l a_0 and w_cond in an oblique view of both components."""
    plane: dict[str, tuple[float, ...]]
    """Coordinates of u and w_cond within the conditional plane."""


@dataclass(frozen=True)
class IllustrationsRecord(Record):
    """What `tpkd figures` draws."""

    feasibility: FeasibilityIllustration
    geometry: GeometryIllustration


@dataclass(frozen=True)
class ExplorerCase:
    """A student, a teacher and a label that the explorer can show, and what the library says about them."""

    name: str
    """In the address of the page."""
    title: str
    text: str
    """What there is to see, in a sentence or two."""
    student_logits: tuple[float, ...]
    teacher_logits: tuple[float, ...]
    labels: tuple[float, ...]
    """A share per class; one class with all of it is an ordinary label."""
    beta: float
    temperature: float
    position: float
    """s, on the path."""
    budget: float
    """B, of the frontier."""
    numbers: dict[str, Any]
    """By the names of the functions and fields that give them; None where one is infinite."""


@dataclass(frozen=True)
class ExplorerRecord(Record):
    """What the explorer starts from."""

    cases: tuple[ExplorerCase, ...]
