"""Docstrings as the reference shows them: doctests as code, and stars in shapes as stars."""

import re
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """What this project writes, in the words that the parser of docstrings knows."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """`Example:` is the section that the parser calls `Examples:`; a paper's label is set off as code."""
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.M)
            obj.docstring.value = re.sub(r"^Paper: (.*?)(\.?)$", r"**Paper**: `\1`\2", text, flags=re.M)
