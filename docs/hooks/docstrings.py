"""Docstrings as the reference shows them: doctests as code, labels of the paper set off."""

import re
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """What this project writes, in the words that the parser of docstrings knows."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """`Example:` is the section that the parser calls `Examples:`; a label of the paper becomes code."""
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.M)
            text = re.sub(r"^Paper: ", "**Paper:** ", text, flags=re.M)
            obj.docstring.value = re.sub(r"(?<![`\w])((?:eq|thm|prop|cor|lem|tab|fig):[\w-]+)", r"`\1`", text)
