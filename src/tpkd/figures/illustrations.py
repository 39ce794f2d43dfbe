"""`tpkd figures`: the paper's three illustrations, computed by the library and drawn as SVG and PNG."""

from collections.abc import Callable
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from tpkd.errors import InputError
from tpkd.figures.record import Curve, FeasibilityIllustration, GeometryIllustration, IllustrationsRecord
from tpkd.files import publish
from tpkd.geometry import (
    conditional_loss,
    confidence_axis,
    directions,
    imitation_loss,
    label_loss,
    margins,
    max_log_ratio,
    split,
)
from tpkd.theory.compensation import (
    ce_only_imitation_loss,
    ce_only_optimum,
    log_transfer_path,
    min_confidence,
    transfer_cost,
    transfer_endpoint,
)

STUDENT, TEACHER = (0.90, 0.07, 0.03), (0.40, 0.25, 0.35)
STUDENT_CONDITIONAL, TEACHER_CONDITIONAL = (0.20, 0.30, 0.50), (0.30, 0.32, 0.38)
GRID = 101
OBLIQUE_LENGTH, OBLIQUE_SINE = 3.35, 0.45
"""Length of u on the page, and the sine of the angle from which the conditional plane is seen."""


def feasibility_illustration() -> FeasibilityIllustration:
    """A blocked student whose conditional knowledge can still grow: imitation worsens while both losses fall.

    Paper: fig:feasibility. Classes 1, 2, 3 with label 1, p = (0.90, 0.07, 0.03) and t = (0.40, 0.25, 0.35).

    Example:
        >>> round(feasibility_illustration().numbers["min_confidence"], 3)
        0.946
    """
    z, zt, y = _log(STUDENT), _log(TEACHER), torch.tensor(0)
    student, teacher = split(z, y), split(zt, y)
    s = torch.linspace(0, 1, GRID, dtype=torch.float64)
    path = log_transfer_path(z, zt, y, s)
    labels = y.expand(GRID)
    along = split(path, labels)
    losses = (
        label_loss(path, labels),
        conditional_loss(path, zt.expand_as(path), labels),
        imitation_loss(path, zt.expand_as(path), labels),
    )
    x = torch.linspace(0.01, 0.99, GRID, dtype=torch.float64)
    boundary = max_log_ratio(torch.stack([1 - x, x], dim=-1).log(), student.log_conditional)
    endpoint, ce_only = transfer_endpoint(z, zt, y), ce_only_optimum(z, zt, y)
    before, after, ce_only_after = margins(z, y), margins(endpoint, y), margins(ce_only, y)
    return FeasibilityIllustration(
        student=STUDENT,
        teacher=TEACHER,
        numbers={
            "transfer_cost": transfer_cost(z, zt, y).item(),
            "max_ratio": transfer_cost(z, zt, y).exp().item(),
            "min_confidence": min_confidence(z, zt, y).item(),
            "teacher_rise": (teacher.log_odds - student.log_odds).item(),
            "teacher_conditional_3": teacher.log_conditional[1].exp().item(),
            "odds_against_2_before": before[0].exp().item(),
            "odds_against_2_after": after[0].exp().item(),
            "odds_against_3_before": before[1].exp().item(),
            "odds_against_3_after": after[1].exp().item(),
            "odds_against_3_ce_only": ce_only_after[1].exp().item(),
            "label_loss_before": losses[0][0].item(),
            "label_loss_after": losses[0][-1].item(),
            "conditional_loss_before": losses[1][0].item(),
            "conditional_loss_after": losses[1][-1].item(),
            "imitation_loss_before": losses[2][0].item(),
            "imitation_loss_after": losses[2][-1].item(),
            "imitation_loss_ce_only": ce_only_imitation_loss(z, zt, y).item(),
        },
        endpoint=_tuple(endpoint.exp()),
        ce_only_optimum=_tuple(ce_only.exp()),
        boundary=Curve(_tuple(x), _tuple(boundary)),
        path=Curve(_tuple(along.log_conditional[:, 1].exp()), _tuple(along.log_odds - student.log_odds)),
        label_loss=Curve(_tuple(s), _tuple(losses[0] / losses[0][0])),
        conditional_loss=Curve(_tuple(s), _tuple(losses[1] / losses[1][0])),
        imitation_loss=Curve(_tuple(s), _tuple(losses[2] / losses[2][0])),
    )


def geometry_illustration() -> GeometryIllustration:
    """What protection keeps of a conditional direction: compensation on one axis, relations in the plane.

    Paper: fig:projection-geometry. Four classes, r = (0.20, 0.30, 0.50) and q = (0.30, 0.32, 0.38).

    Example:
        >>> round(geometry_illustration().numbers["angle_degrees"], 2)
        11.54
    """
    y = torch.tensor(0)
    # Any confidence gives the same conditional directions.
    step = directions(_log((0.5, *(r / 2 for r in STUDENT_CONDITIONAL))), _log((0.5, *TEACHER_CONDITIONAL)), y)
    u, d, w = step.conditional, step.safe, step.pure_conditional
    axis = confidence_axis(y, 4, dtype=torch.float64)
    scale = OBLIQUE_LENGTH / u.norm()
    along = u / u.norm()
    across = w - (w @ along) * along
    depth, up = across / across.norm(), axis / axis.norm()

    def oblique(vector: Tensor) -> tuple[float, ...]:
        rise = OBLIQUE_SINE * (vector @ depth) + (1 - OBLIQUE_SINE**2) ** 0.5 * (vector @ up)
        return _tuple(scale * torch.stack([vector @ along, rise]))

    def plane(vector: Tensor) -> tuple[float, ...]:
        return _tuple(scale * torch.stack([vector @ along, vector @ depth]))

    cosine = (u @ w) / (u.norm() * w.norm())
    return GeometryIllustration(
        conditional=_tuple(u),
        safe=_tuple(d),
        pure_conditional=_tuple(w),
        numbers={"compensation": step.compensation.item(), "angle_degrees": cosine.acos().rad2deg().item()},
        oblique={"u": oblique(u), "d": oblique(d), "l a_0": oblique(d - w), "w_cond": oblique(w)},
        plane={"u": plane(u), "w_cond": plane(w)},
    )


def draw_illustrations(directory: Path) -> list[Path]:
    """Write the three figures as SVG and PNG and their numbers as JSON; return what was written."""
    from tpkd.figures.charts import draw_feasibility, draw_geometry, draw_workflow

    record = IllustrationsRecord(feasibility_illustration(), geometry_illustration())
    figures: dict[str, Callable[[IO[bytes], str], None]] = {
        "figure-1-feasibility": lambda file, kind: draw_feasibility(record.feasibility, file, kind),
        "figure-2-workflow": draw_workflow,
        "figure-3-geometry": lambda file, kind: draw_geometry(record.geometry, file, kind),
    }
    written = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, draw in figures.items():
            for kind in ("svg", "png"):
                written.append(directory / f"{name}.{kind}")
                with publish(written[-1]) as file:
                    draw(file, kind)
        written.append(directory / "figures.json")
        with publish(written[-1]) as file:
            file.write(record.to_json().encode())
    except OSError as error:
        raise InputError(f"{directory}: cannot be written: {error.strerror or error}") from error
    return written


def _log(probabilities: tuple[float, ...]) -> Tensor:
    return torch.tensor(probabilities, dtype=torch.float64).log()


def _tuple(values: Tensor) -> tuple[float, ...]:
    return tuple(values.tolist())
