"""How the worth of a number is shown: a sign or a word before it, and rounding that keeps a bound a bound."""

from tpkd.diagnosis.record import StudentDiagnosis
from tpkd.report.numbers import FORMATS, NONE

SIGNS = {"exact": "", "upper": "≤", "lower": "≥", "completed": "~"}
_WORDS = {"exact": "", "upper": "at most ", "lower": "at least ", "completed": ""}
_ROUNDING = {"upper": "_up", "lower": "_down"}
_ASCII = str.maketrans({"≤": "<=", "≥": ">="})


def bound_of(student: StudentDiagnosis, name: str) -> str:
    """What a number of a record says about the teacher: "exact", "lower", "upper" or "completed"."""
    return "exact" if student.bounds is None else student.bounds[name]


def kind_of(bound: str, kind: str) -> str:
    """The format of a number that is a bound: rounded in its own direction.

    Example:
        >>> kind_of("lower", "nats"), kind_of("upper", "count"), kind_of("exact", "nats")
        ('nats_down', 'count', 'nats')
    """
    directed = kind + _ROUNDING.get(bound, "")
    return directed if directed in FORMATS else kind


def signed(student: StudentDiagnosis, name: str, kind: str, value: float | None) -> str:
    """A number with its sign, such as "≥ 0.523"."""
    bound = bound_of(student, name)
    text = FORMATS[kind_of(bound, kind)](value)
    return text if text == NONE or not SIGNS[bound] else f"{SIGNS[bound]} {text}"


def worded(student: StudentDiagnosis, name: str, kind: str, value: float | None) -> str:
    """A number with its bound in words, such as "at least 0.523"."""
    bound = bound_of(student, name)
    text = FORMATS[kind_of(bound, kind)](value)
    return text if text == NONE else f"{_WORDS[bound]}{text}"


def in_ascii(text: str) -> str:
    """Signs for a terminal that has no others.

    Example:
        >>> in_ascii("≤ 34.1 %")
        '<= 34.1 %'
    """
    return text.translate(_ASCII)
