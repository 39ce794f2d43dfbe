"""What the reference needs help with: docstrings with doctests and labels of the paper, and `@register`."""

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

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        """`@register` makes a class a dataclass: say so, and its settings become the parameters of its constructor."""
        if any(decorator.callable_path == "tpkd.objectives.registry.register" for decorator in cls.decorators):
            value = griffe.ExprName("dataclass", parent=griffe.ExprName("dataclasses"))
            cls.decorators.append(griffe.Decorator(value, lineno=cls.lineno, endlineno=cls.lineno))
