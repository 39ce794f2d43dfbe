"""The base of all records: frozen, with a schema version, JSON in and out."""

import json
import types
import typing
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self

_ADDED = "added"


def added(default: Any) -> Any:
    """A field that came after the first records of its kind: written only where it is not the default.

    Records that say nothing new keep their bytes, and those from before it are read as having the default.

    Example:
        >>> @dataclass(frozen=True)
        ... class Measured(Record):
        ...     value: float
        ...     beta: float = added(0.5)
        >>> Measured(1.0).to_dict(), Measured(1.0, 2.0).to_dict()
        ({'schema': 1, 'value': 1.0}, {'schema': 1, 'value': 1.0, 'beta': 2.0})
        >>> Measured.from_dict({"schema": 1, "value": 1.0}).beta
        0.5
    """
    return field(default=default, metadata={_ADDED: True})


@dataclass(frozen=True)
class Record:
    """The top of a record: it carries a schema version, its parts are plain frozen dataclasses.

    A field with a default may be absent in an older record; see `added`.
    """

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
        items = ((each, getattr(value, each.name)) for each in fields(value))
        return {
            each.name: _plain(item) for each, item in items if not (_ADDED in each.metadata and item == each.default)
        }
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
    known = {each.name for each in fields(kind)}
    needed = {each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING}
    if not needed <= set(value) <= known:
        missing, unknown = sorted(needed - set(value)), sorted(set(value) - known)
        raise ValueError(f"{path}: missing {missing or 'nothing'}, unknown {unknown or 'nothing'}")
    hints = _hints(kind)
    return kind(**{name: _build(hints[name], item, f"{path}.{name}") for name, item in value.items()})


@lru_cache(maxsize=256)
def _hints(kind: Any) -> dict[str, Any]:
    """The types of a record's fields; working them out takes longer than reading a record, of which there are many."""
    return typing.get_type_hints(kind)


def _check(fits: bool, path: str, expected: str, value: Any) -> None:
    if not fits:
        raise ValueError(f"{path}: expected {expected}, got {value!r}")
