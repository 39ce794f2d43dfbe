"""Which columns of a table form an array: those of the classes, or the one with labels or ids."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from tpkd.errors import InputError, shortened, some

LABEL_NAMES = ("label", "labels", "category", "intent", "class", "target", "fine_label")
ID_NAMES = ("id", "ids", "sample_id", "sample_ids")
BESIDE = frozenset({*LABEL_NAMES[:2], *ID_NAMES, "__index_level_0__"})
"""Columns that are never a class; the last is pandas' index in a parquet file."""

USUAL_NAMES = frozenset({*LABEL_NAMES, *ID_NAMES})

_USUAL = {"labels": LABEL_NAMES, "ids": ID_NAMES}
_PREFIXES = {
    "logits": re.compile(r"logits?[ _.:-](.+)", re.DOTALL),
    "probabilities": re.compile(r"prob(?:s|ability|abilities)?[ _.:-](.+)", re.DOTALL),
}
_NUMBERED = re.compile(r"(.*?)(\d{1,9})", re.ASCII | re.DOTALL)


class ChosenColumns(NamedTuple):
    """The positions of the columns of an array, and the classes they stand for."""

    places: tuple[int, ...]
    class_names: tuple[str, ...] | None
    """None for a single column, and where the columns are only numbered."""
    single: bool
    """Whether the array has one value per row and no axis of classes."""


def choose_columns(where: str, names: Sequence[str], key: str) -> ChosenColumns:
    """The columns of the array `key`.

    In this order: the column of that name; for `labels` and `ids` a usual name such as `label` or `id`; all columns
    `logit NAME` or `logit_NAME` for `logits`, and so for `probabilities`; a single column; all columns except labels,
    ids and an unnamed first one, which is the index that pandas writes.

    Raises:
        InputError: a column is there twice or has no name, several could be meant, or numbered columns are not in the
            order of their numbers.

    Example:
        >>> choose_columns("a.csv", ["id", "cat", "dog", "label"], "logits")
        ChosenColumns(places=(1, 2), class_names=('cat', 'dog'), single=False)
        >>> choose_columns("a.csv", ["id", "cat", "dog", "label"], "labels")
        ChosenColumns(places=(3,), class_names=None, single=True)
        >>> choose_columns("a.csv", ["logit_0", "logit_1", "note"], "logits").places
        (0, 1)
    """
    _check_names(where, names)
    if key in names:
        return ChosenColumns((list(names).index(key),), None, True)
    usual = _usual(where, names, key)
    if usual is not None:
        return ChosenColumns((list(names).index(usual),), None, True)
    if len(names) == 1:
        return ChosenColumns((0,), None, True)
    classes = _prefixed(names, key) or {
        place: name for place, name in enumerate(names) if name not in BESIDE and (place or name)
    }
    if not classes:
        raise InputError(f"{where}: expected columns of classes, found {some(list(names), 8)}")
    return ChosenColumns(tuple(classes), class_columns(where, tuple(classes.values())), False)


def class_columns(where: str, names: Sequence[str]) -> tuple[str, ...] | None:
    """The names of columns as class names; None where they only number the classes from 0 or 1.

    Raises:
        InputError: numbered columns in another order, such as `logit_10` before `logit_2`, would be taken for other
            classes.

    Example:
        >>> class_columns("a.csv", ["cat", "dog"]), class_columns("a.csv", ["V1", "V2", "V3"])
        (('cat', 'dog'), None)
    """
    found = [_NUMBERED.fullmatch(name) for name in names]
    if any(match is None for match in found) or len({match[1] for match in found if match}) != 1:
        return tuple(names)
    numbers = [int(match[2]) for match in found if match]
    first = min(numbers)
    in_order = list(range(first, first + len(names)))
    if first > 1 or sorted(numbers) != in_order:
        return tuple(names)
    if numbers != in_order:
        place = next(place for place, number in enumerate(numbers) if number != in_order[place])
        raise InputError(
            f"{where}: expected numbered columns in their order, found {names[place]!r} in place {place + 1} of the "
            "classes; sort the columns by number"
        )
    return None


def _check_names(where: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for place, name in enumerate(names):
        if name in seen:
            raise InputError(f"{where}: duplicate column {shortened(name, 60)!r}")
        if not name.strip() and place:
            raise InputError(f"{where}: expected a name for column {place + 1}, found none")
        seen.add(name)


def _usual(where: str, names: Sequence[str], key: str) -> str | None:
    """The column with a usual name; the first of the names wins, because it is the one we document."""
    usual = _USUAL.get(key, ())
    present = [name for name in usual if name in names]
    if len(present) > 1 and present[0] != usual[0]:
        raise InputError(
            f"{where}: expected one column of {key}, found {' and '.join(map(repr, present[:2]))}; rename the one that "
            f"is meant to {usual[0]!r}"
        )
    return present[0] if present else None


def _prefixed(names: Sequence[str], key: str) -> dict[int, str]:
    """The columns that say what they hold, by place, without the prefix; a single one may be a class of that name."""
    if key not in _PREFIXES:
        return {}
    found = {place: match[1] for place, name in enumerate(names) if (match := _PREFIXES[key].fullmatch(name))}
    return found if len(found) > 1 else {}
