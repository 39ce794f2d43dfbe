"""The cases that the explorer starts from, and the library's numbers for any case, with which its script must agree."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from tpkd.figures.illustrations import STUDENT, STUDENT_CONDITIONAL, TEACHER, TEACHER_CONDITIONAL
from tpkd.figures.record import ExplorerCase, ExplorerRecord
from tpkd.geometry import directions, imitation_direction, margins, project_safe_cone
from tpkd.geometry.constants import PAPER_BETA
from tpkd.theory.blocking import strict_blocking_log_odds
from tpkd.theory.compensation import log_transfer_path, transfer_endpoint
from tpkd.theory.diagnosis import Diagnosis, diagnose
from tpkd.theory.frontier import frontier

Numbers = dict[str, bool | float | tuple[float | None, ...] | None]
_VECTORS = ("label", "conditional", "safe", "update", "clipped_mass", "pure_conditional")


def case_numbers(
    student_logits: Float[Tensor, "cases K"],
    teacher_logits: Float[Tensor, "cases K"],
    labels: Float[Tensor, "cases K"],
    *,
    beta: float,
    temperature: float,
    position: Float[Tensor, "cases"],
    budget: Float[Tensor, "cases"],
) -> list[Numbers]:
    """What the library says about some cases, by the names of its functions; None where a number is infinite.

    Example:
        >>> student, teacher = torch.tensor([STUDENT]).log(), torch.tensor([TEACHER]).log()
        >>> label, half = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([0.5])
        >>> (found,) = case_numbers(student, teacher, label, beta=0.5, temperature=1.0, position=half, budget=half)
        >>> found["blocked"], round(found["transfer_cost"], 3)
        (True, 0.665)
    """
    pair = (student_logits, teacher_logits, labels)
    state = diagnose(*pair, beta=beta, temperature=temperature)
    step = directions(*pair, beta=beta, temperature=temperature)
    best = frontier(*pair, budget)
    found = {
        **{name: getattr(state, name) for name in Diagnosis.names()},
        **{name: getattr(step, name) for name in _VECTORS},
        "margins": margins(student_logits, labels),
        "strict_blocking_log_odds": strict_blocking_log_odds(*pair),
        "safe_imitation": project_safe_cone(imitation_direction(*pair), labels),
        "transfer_endpoint": transfer_endpoint(*pair).exp(),
        "transfer_path": log_transfer_path(*pair, position).exp(),
        "frontier_value": best.value,
        "frontier_conditional": best.log_conditional.exp(),
    }
    plain = {name: values.tolist() for name, values in found.items()}
    return [{name: _finite(values[row]) for name, values in plain.items()} for row in range(len(labels))]


def _finite(value: bool | float | list[float]) -> bool | float | tuple[float | None, ...] | None:
    if isinstance(value, list):
        return tuple(entry if math.isfinite(entry) else None for entry in value)
    return value if math.isfinite(value) else None


@dataclass(frozen=True)
class _Preset:
    """A case by its probabilities."""

    name: str
    title: str
    text: str
    student: tuple[float, ...]
    teacher: tuple[float, ...]
    labels: tuple[float, ...] = ()
    """Empty: the first class."""
    beta: float = PAPER_BETA
    temperature: float = 1.0


POSITION, BUDGET = 0.5, 0.3
"""Where on the path and on the frontier the explorer starts."""
_PRESETS = (
    _Preset(
        "figure-1",
        "Figure 1: blocked",
        "The student is right and sure, the teacher is right and unsure. Every prediction that is closer to the "
        "teacher gives back a margin, and yet all of what the teacher knows about classes 2 and 3 can be had.",
        STUDENT,
        TEACHER,
    ),
    _Preset(
        "figure-3",
        "Figure 3: the projection",
        "The teacher asks the student to raise two competitors. The projection clips the larger request, and "
        "turns what it clips into a push on the correct class.",
        (0.5, *(share / 2 for share in STUDENT_CONDITIONAL)),
        (0.5, *(share / 2 for share in TEACHER_CONDITIONAL)),
    ),
    _Preset(
        "open",
        "Not blocked",
        "The student is less sure than its teacher: it can still come closer and keep every margin.",
        (0.45, 0.40, 0.15),
        (0.80, 0.05, 0.15),
    ),
    _Preset(
        "teacher-wrong",
        "A teacher that is wrong",
        "The teacher prefers class 2. Its step for class 2 would cost the student its answer; the protected step "
        "keeps the label step's margins, whatever the teacher says.",
        (0.55, 0.40, 0.05),
        (0.15, 0.70, 0.15),
    ),
    _Preset(
        "certain",
        "A student that is certain",
        "Hardly any probability is left for wrong classes, so that nothing of their relations shows in the "
        "teacher's KL. The conditional loss still sees all of it.",
        (0.998, 0.0015, 0.0005),
        (0.90, 0.02, 0.08),
    ),
    _Preset(
        "tight",
        "Tight: the least retention",
        "All that the teacher asks for is one class. No other case loses more of the conditional signal: the "
        "retention is the bound of theorem 3, 2/3 for four classes.",
        (0.6, 0.04, 0.18, 0.18),
        (0.6, 0.28, 0.06, 0.06),
    ),
    _Preset(
        "mixup",
        "Mixup",
        "An image of two classes, 70 to 30. Protected is every comparison of one of the two with another class: "
        "no margin ends lower than after the step of the mixed label alone.",
        (0.5, 0.2, 0.18, 0.08, 0.04),
        (0.45, 0.25, 0.06, 0.09, 0.15),
        labels=(0.7, 0.3, 0.0, 0.0, 0.0),
    ),
    _Preset(
        "temperature",
        "Temperature 4",
        "A softer conditional shows the teacher's small probabilities. The step changes with the temperature; "
        "blocking, price and frontier do not.",
        (0.7, 0.2, 0.06, 0.03, 0.01),
        (0.6, 0.3, 0.02, 0.02, 0.06),
        beta=1.0,
        temperature=4.0,
    ),
)


def explorer_record() -> ExplorerRecord:
    """The cases of the explorer with their numbers.

    Example:
        >>> [case.name for case in explorer_record().cases][:2]
        ['figure-1', 'figure-3']
    """
    return ExplorerRecord(tuple(map(_case, _PRESETS)))


def _case(preset: _Preset) -> ExplorerCase:
    shares = preset.labels or (1.0, *(0.0 for _ in preset.student[1:]))
    z, zt, s = (torch.tensor([row], dtype=torch.float64) for row in (preset.student, preset.teacher, shares))
    place, budget = (torch.tensor([value], dtype=torch.float64) for value in (POSITION, BUDGET))
    (numbers,) = case_numbers(
        z.log(), zt.log(), s, beta=preset.beta, temperature=preset.temperature, position=place, budget=budget
    )
    return ExplorerCase(
        name=preset.name,
        title=preset.title,
        text=preset.text,
        student_logits=tuple(z.log()[0].tolist()),
        teacher_logits=tuple(zt.log()[0].tolist()),
        labels=shares,
        beta=preset.beta,
        temperature=preset.temperature,
        position=POSITION,
        budget=BUDGET,
        numbers=dict(numbers),
    )
