"""The section `schedule`: how the learning rate changes over a run.

Formulas count steps k from 0 to N - 1, and W is the number of warm-up steps: while k < W, the factor is k / W.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from tpkd.config.section import LARGEST_COUNT, Section
from tpkd.errors import shortened


def _read_number(value: Any) -> Any:
    """The number that a text stands for, such as `1e-2`, which YAML takes for one; anything else as it is."""
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def _check_warmup(value: Any) -> Any:
    number = _read_number(value)
    if type(number) is int and 0 <= number <= LARGEST_COUNT:
        return number
    if type(number) is float and 0 <= number < 1:
        return number
    share = "a share of all steps from 0 up to, but not including, 1"
    raise ValueError(f"expected steps (a whole number) or {share}, found {shortened(repr(value), 60)}")


def _check_milestone(value: Any) -> Any:
    number = _read_number(value)
    if type(number) is int and 1 <= number <= LARGEST_COUNT:
        return number
    if type(number) is float and 0 < number < 1:
        return number
    share = "a share of all steps between 0 and 1"
    raise ValueError(f"expected an epoch (a whole number from 1) or {share}, found {shortened(repr(value), 60)}")


def _number_schema(least: int, share: dict[str, float]) -> WithJsonSchema:
    whole, part = {"type": "integer", "minimum": least}, {"type": "number", **share, "exclusiveMaximum": 1}
    return WithJsonSchema({"anyOf": [whole, part]})


Warmup = Annotated[int | float, BeforeValidator(_check_warmup), _number_schema(0, {"minimum": 0})]
"""A whole number of steps, or a share of all steps in [0, 1), rounded to the nearest step."""
Milestone = Annotated[int | float, BeforeValidator(_check_milestone), _number_schema(1, {"exclusiveMinimum": 0})]
"""A whole number of epochs, or a share of all steps in (0, 1), rounded to the nearest step."""


def _check_once(milestones: tuple[int | float, ...]) -> tuple[int | float, ...]:
    seen: set[int | float] = set()
    for milestone in milestones:
        if milestone in seen:
            raise ValueError(f"expected every milestone once, found {milestone} twice")
        seen.add(milestone)
    return milestones


class ConstantSchedule(Section):
    """The base rate throughout, after the warm-up."""

    name: Literal["constant"] = "constant"
    warmup: Warmup = 0
    """Steps, or a share of all steps."""


class LinearSchedule(Section):
    """(N - k) / (N - W) of the base rate after the warm-up: down to 0 in a straight line."""

    name: Literal["linear"] = "linear"
    warmup: Warmup = 0
    """Steps, or a share of all steps."""


class CosineSchedule(Section):
    """final + (1 - final) (1 + cos(pi (k - W) / (N - W))) / 2 of the base rate after the warm-up."""

    name: Literal["cosine"] = "cosine"
    warmup: Warmup = 0
    """Steps, or a share of all steps."""
    final: Annotated[float, Field(ge=0, le=1)] = 0.0
    """The share of the base rate that the curve ends at."""


class StepSchedule(Section):
    """The base rate times `factor` for every milestone that is passed."""

    name: Literal["step"] = "step"
    milestones: Annotated[tuple[Milestone, ...], Field(min_length=1), AfterValidator(_check_once)]
    """Epochs after which the rate falls, as whole numbers; or shares of all steps, such as 0.5."""
    factor: Annotated[float, Field(gt=0, lt=1)] = 0.1
    warmup: Warmup = 0
    """Steps, or a share of all steps."""

    def check_reached(self, epochs: int) -> None:
        """Refuse milestones that a run of so many epochs never passes."""
        late = [milestone for milestone in self.milestones if milestone >= epochs]
        if late:
            way_out = "shares such as 0.5 move with the length of the run"
            raise ValueError(f"schedule.milestones: expected epochs below {epochs}, found {late[0]}; {way_out}")


class WarmupLinearSchedule(Section):
    """The paper's: k / W of the base rate while k < W, then 1 - k / N."""

    name: Literal["warmup-linear"] = "warmup-linear"
    warmup: Warmup
    """Steps, or a share of all steps."""


ScheduleConfig = ConstantSchedule | LinearSchedule | CosineSchedule | StepSchedule | WarmupLinearSchedule
