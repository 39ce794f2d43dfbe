"""The key `output`: a path with placeholders for what distinguishes runs."""

import re
from collections.abc import Mapping
from pathlib import PurePath

PLACEHOLDERS = ("{objective}", "{seed}")

_PARTS = re.compile(r"\{\{|\}\}|" + "|".join(map(re.escape, PLACEHOLDERS)))
_BRACES = {"{{": "{", "}}": "}"}


def fill_output(output: str, values: Mapping[str, str]) -> str:
    """Fill in the placeholders of an output; a doubled brace becomes a single one.

    Example:
        >>> fill_output("runs/{objective}-{{a}}", {"{objective}": "ce", "{seed}": "42"})
        'runs/ce-{a}'
    """
    return _PARTS.sub(lambda part: {**_BRACES, **values}[part[0]], output)


def placeholders_in(output: str) -> frozenset[str]:
    """The placeholders that an output contains.

    Example:
        >>> sorted(placeholders_in("runs/{objective}-{{seed}}"))
        ['{objective}']
    """
    return frozenset(_PARTS.findall(output)).intersection(PLACEHOLDERS)


def literal_output(path: str | PurePath) -> str:
    """Escape a path, so that as an output it means exactly this path.

    Example:
        >>> literal_output("runs/{seed}")
        'runs/{{seed}}'
    """
    return str(path).replace("{", "{{").replace("}", "}}")
