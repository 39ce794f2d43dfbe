"""How far a loss reaches: the lead at which each dtype stops being finite, and two classes."""

from dataclasses import dataclass
from functools import partial

import torch

from tpkd.check_loss.check import Check, Verdict, check, failed, not_applicable, passed
from tpkd.check_loss.scene import Scene, input_text, ordinary_scene
from tpkd.check_loss.subject import RefusedError, Subject

LIMITS = {torch.float64: 1000, torch.float32: 1000, torch.bfloat16: 1000, torch.float16: 500}
"""The lead up to which value and gradient have to be finite: half of it where the dtype itself ends at 65,504."""
LEADS = (10, 50, 200, 500, 1000)
WIDE = 100
"""Classes: enough for the others to weigh together."""
SHAPES: tuple[dict[int, float], ...] = ({}, {0: 1}, {1: 1}, {0: -1}, {1: -0.5, 2: 0.5})
"""Multiples of the lead by class, the label being 0: certain of nothing, the label, another, anything but the label."""
PAIRS = tuple((student, teacher) for student in SHAPES for teacher in SHAPES)


@dataclass(frozen=True)
class Extreme:
    """One student and one teacher at a lead."""

    student: dict[int, float]
    teacher: dict[int, float]
    lead: int

    def scene(self, dtype: torch.dtype) -> Scene:
        """A single sample of class 0."""
        logits = torch.zeros(2, 1, WIDE, dtype=dtype)
        for row, shape in enumerate((self.student, self.teacher)):
            for index, multiple in shape.items():
                logits[row, 0, index] = multiple * self.lead
        return Scene(logits[0], logits[1], torch.zeros(1, dtype=torch.long))

    def text(self, dtype: torch.dtype) -> str:
        """`scene` as statements."""
        entries = [
            f"{name}[0,{index}]={multiple * self.lead:g}"
            for name, shape in (("s", self.student), ("t", self.teacher))
            for index, multiple in shape.items()
        ]
        return "; ".join([f"s,t=torch.zeros(2,1,{WIDE},dtype={dtype})", *entries, "y=torch.tensor([0])"])


@check("finite")
def finite(subject: Subject) -> Verdict:
    """Ordinary logits give numbers."""
    if subject.ordinary.finite:
        return passed("value and gradient of ordinary logits are finite")
    return failed(f"ordinary logits give a value of {subject.ordinary.total}", subject.finite_command())


def _certainty(subject: Subject, dtype: torch.dtype) -> Verdict:
    """Value and gradient stay finite when student or teacher are certain, rightly or wrongly."""
    limit, good = LIMITS[dtype], 0
    try:
        for lead in (lead for lead in LEADS if lead <= limit):
            if (bad := _find_bad(subject, dtype, lead)) is not None:
                return _report(subject, dtype, _smallest(subject, dtype, bad, good))
            good = lead
    except RefusedError as error:
        return not_applicable(f"refused: {error}")
    return passed(f"finite up to a lead of {limit}")


CERTAINTY = tuple(
    Check(f"certainty in {str(dtype).removeprefix('torch.')}", (), partial(_certainty, dtype=dtype)) for dtype in LIMITS
)


def _find_bad(subject: Subject, dtype: torch.dtype, lead: int) -> Extreme | None:
    """The first pair that is not finite on its own; all together first, which is faster and mostly enough."""
    extremes = [Extreme(student, teacher, lead) for student, teacher in PAIRS]
    if not subject.claims.batchwise:
        scenes = [extreme.scene(dtype) for extreme in extremes]
        parts = ([getattr(scene, part) for scene in scenes] for part in ("student", "teacher", "labels"))
        undo_mean = len(PAIRS) if subject.reduction == "mean" else 1
        if subject.evaluate(Scene(*map(torch.cat, parts)), factor=undo_mean).finite:
            return None
    return next((extreme for extreme in extremes if _is_bad(subject, dtype, extreme)), None)


def _is_bad(subject: Subject, dtype: torch.dtype, extreme: Extreme) -> bool:
    if subject.evaluate(extreme.scene(dtype)).finite:
        return False
    exact = subject.evaluate(extreme.scene(torch.float64))
    return not exact.finite or abs(exact.total) < torch.finfo(dtype).max


def _smallest(subject: Subject, dtype: torch.dtype, bad: Extreme, good: int) -> Extreme:
    """The smallest whole lead at which some pair is not finite, between one that is good and one that is bad."""
    while bad.lead - good > 1:
        middle = (good + bad.lead) // 2
        found = _find_bad(subject, dtype, middle)
        if found is None:
            good = middle
        else:
            bad = found
    return bad


def _report(subject: Subject, dtype: torch.dtype, bad: Extreme) -> Verdict:
    found = subject.evaluate(bad.scene(dtype))
    value, gradient = found.total, found.gradient.double().sum().item()
    certain = [who for who, shape in (("student", bad.student), ("teacher", bad.teacher)) if shape]
    who = f"certain: {' and '.join(certain) or 'nobody'}"
    text = f"not finite from a lead of {bad.lead} on ({who}): value {value:.3g}, sum of the gradient {gradient:.3g}"
    return failed(text, subject.finite_command(".double()", bad.text(dtype)))


@check("two classes")
def two_classes(subject: Subject) -> Verdict:
    """Two classes are served or refused, never answered with what is not a number."""
    try:
        found = subject.evaluate(ordinary_scene(classes=2))
    except RefusedError as error:
        return not_applicable(f"refused: {error}")
    if found.finite:
        return passed("finite")
    return failed(f"a value of {found.total:.4g}", subject.finite_command(inputs=input_text(classes=2)))
