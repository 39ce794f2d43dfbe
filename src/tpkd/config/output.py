"""The key `output`: a path with placeholders for what tells runs apart."""

import re
from collections.abc import Mapping
from pathlib import PurePath

PLACEHOLDERS = ("{objective}", "{seed}")

_PARTS = re.compile(r"\{\{|\}\}|" + "|".join(map(re.escape, PLACEHOLDERS)))
_BRACES = {"{{": "{", "}}": "}"}


def fill_output(output: str, values: Mapping[str, str]) -> str:
    """The path that an output means; a doubled brace is a single one.

    Example:
        >>> fill_output("runs/{objective}-{{a}}", {"{objective}": "ce", "{seed}": "42"})
        'runs/ce-{a}'
    """
    return _PARTS.sub(lambda part: {**_BRACES, **values}[part[0]], output)


def placeholders_in(output: str) -> frozenset[str]:
    """Which placeholders an output has.

    Example:
        >>> sorted(placeholders_in("runs/{objective}-{{seed}}"))
        ['{objective}']
    """
    return frozenset(_PARTS.findall(output)).intersection(PLACEHOLDERS)


def literal_output(path: str | PurePath) -> str:
    """The output that means this path and no other, whatever braces are in it.

    Example:
        >>> literal_output("runs/{seed}")
        'runs/{{seed}}'
    """
    return str(path).replace("{", "{{").replace("}", "}}")
