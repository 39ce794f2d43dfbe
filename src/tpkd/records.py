"""Frozen records with a schema version, JSON in and out: what a study hands to a report, and what is kept on disk."""

import json
import types
import typing
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, Self


@dataclass(frozen=True)
class Record:
    """The top of a record: it carries a schema version, its parts are plain frozen dataclasses."""

    schema: ClassVar[int] = 1

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers, the schema version first."""
        plain: dict[str, Any] = _plain(self)
        return {"schema": self.schema, **plain}

    def to_json(self) -> str:
        """JSON text, keys in order of declaration, no number rounded; NaN and infinity are refused."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False, ensure_ascii=False) + "\n"

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The record that `to_dict` described; what does not fit is refused by its key."""
        if not isinstance(data, dict) or data.get("schema") != cls.schema:
            found = data.get("schema") if isinstance(data, dict) else type(data).__name__
            raise ValueError(f"schema: expected {cls.schema} for {cls.__name__}, got {found!r}")
        record: Self = _build(cls, {key: value for key, value in data.items() if key != "schema"}, cls.__name__)
        return record

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The record that `to_json` wrote."""
        return cls.from_dict(json.loads(text))


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _build(kind: Any, value: Any, path: str) -> Any:
    if kind is Any:
        return value
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        (kind,) = (argument for argument in arguments if argument is not type(None))
        return _build(kind, value, path)
    if is_dataclass(kind):
        return _build_dataclass(kind, value, path)
    if origin is tuple:
        _check(isinstance(value, list | tuple), path, "a list", value)
        return tuple(_build(arguments[0], item, f"{path}[{index}]") for index, item in enumerate(value))
    if origin is dict:
        _check(isinstance(value, dict), path, "an object", value)
        return {key: _build(arguments[1], item, f"{path}.{key}") for key, item in value.items()}
    if kind is float:
        _check(isinstance(value, int | float) and not isinstance(value, bool), path, "a number", value)
        return float(value)
    _check(type(value) is kind, path, kind.__name__, value)
    return value


def _build_dataclass(kind: Any, value: Any, path: str) -> Any:
    _check(isinstance(value, dict), path, "an object", value)
    names = {field.name for field in fields(kind)}
    if names != set(value):
        missing, unknown = sorted(names - set(value)), sorted(set(value) - names)
        raise ValueError(f"{path}: missing {missing or 'nothing'}, unknown {unknown or 'nothing'}")
    hints = typing.get_type_hints(kind)
    return kind(**{name: _build(hints[name], value[name], f"{path}.{name}") for name in names})


def _check(fits: bool, path: str, expected: str, value: Any) -> None:
    if not fits:
        raise ValueError(f"{path}: expected {expected}, got {value!r}")


@dataclass(frozen=True)
class Histogram:
    """Counts in bins of equal width from zero; the last bin holds everything above as well."""

    width: float
    counts: tuple[int, ...]
    largest: float


@dataclass(frozen=True)
class ConfidenceBin:
    """The examples whose confidence lies in [low, high)."""

    low: float
    high: float
    examples: int
    teacher_examples: int
    """How many examples the teacher puts into this bin."""
    blocked: int
    blocked_share: float | None


@dataclass(frozen=True)
class Decomposition:
    """The mean teacher KL as confidence part + conditional part, in nats."""

    confidence: float
    conditional: float
    conditional_share: float | None
    """None where the teacher KL is zero."""


@dataclass(frozen=True)
class FrontierCurve:
    """The mean least conditional loss at each budget of log-odds, over a uniform sample of the examples."""

    sample: int
    budgets: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class ClassState:
    """Means over the examples of one class; None where it has none."""

    index: int
    name: str
    examples: int
    blocked_share: float | None
    confidence: float | None
    teacher_confidence: float | None
    conditional_loss: float | None
    transfer_cost: float | None


@dataclass(frozen=True)
class ClassPair:
    """What is left to learn about one competitor on the examples of one label."""

    label: str
    competitor: str
    examples: int
    left: float
    """Sum of q_j log(q_j / r_j), divided by the number of all examples: its part of the mean conditional loss."""
    left_per_example: float
    """The same sum, divided by the examples of the label."""
    teacher: float
    """Mean q_j."""
    student: float
    """Mean r_j."""


@dataclass(frozen=True)
class Competitor:
    """One incorrect class and its probability among the incorrect classes."""

    name: str
    probability: float


@dataclass(frozen=True)
class ExampleState:
    """One example whose exact transfer costs most."""

    row: int
    id: str
    label: str
    blocked: bool
    confidence: float
    teacher_confidence: float
    conditional_loss: float
    transfer_cost: float
    student_competitors: tuple[Competitor, ...]
    teacher_competitors: tuple[Competitor, ...]


@dataclass(frozen=True)
class StudentDiagnosis:
    """One student against the teacher."""

    file: str
    examples: int
    num_classes: int
    blocked_examples: int
    blocked_share: float
    blocked: dict[str, float | None]
    """Means over the blocked examples; None when there is none."""
    all: dict[str, float]
    """The mean of every field of a diagnosis over all examples."""
    retention_bound: float
    """What theorem 3 guarantees for this number of classes."""
    decomposition: Decomposition
    conditional_loss: Histogram
    transfer_cost: Histogram
    confidence_bins: tuple[ConfidenceBin, ...]
    frontier: FrontierCurve
    classes: tuple[ClassState, ...]
    pairs: tuple[ClassPair, ...] | None
    """None where there are too many classes to keep a table of pairs in memory."""
    costliest: tuple[ExampleState, ...]


@dataclass(frozen=True)
class DiagnosisRecord(Record):
    """What `tpkd diagnose` found: one entry a student, in the order they were given."""

    teacher: str
    labels: str
    students: tuple[StudentDiagnosis, ...]


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
