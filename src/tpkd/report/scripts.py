"""Scripts and data inside pages: data that cannot end their element, and a policy that runs no other script."""

import base64
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markupsafe import Markup

_SCRIPT = re.compile(r"<script([^>]*)>(.*?)</script>", re.DOTALL)
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&'"}
"""Signs that HTML gives a meaning; in JSON they occur inside strings alone, where an escape means the same."""


def json_text(value: Any) -> str:
    r"""JSON that is safe inside a `<script>` element or as a `.js` file.

    Pure ASCII: line separators, marks of direction and lone surrogates are escapes. Refuses NaN, which JSON lacks.

    Example:
        >>> print(json_text({"name": "</script>\u2028"}))
        {"name":"\u003c/script\u003e\u2028"}
    """
    return json.dumps(value, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)


def json_element(name: str, value: Any) -> "Markup":
    r"""Data of a page as an element that runs nothing; `tpkd.data(name)` of `toolkit.js` reads it.

    Example:
        >>> print(json_element("cases", [1, "<b>"]))
        <script type="application/json" id="cases">[1,"\u003cb\u003e"]</script>
    """
    from markupsafe import Markup

    return Markup('<script type="application/json" id="{}">{}</script>').format(name, Markup(json_text(value)))


def script_sources(markup: str) -> str:
    """What a content security policy allows: the scripts of some markup by their hashes, and files beside the page.

    Without `unsafe-inline`, an event handler or a script that a text would smuggle into the page does not run.

    Example:
        >>> script_sources("<script>go()</script>")
        "'sha256-5KYv+PUboo5h+0+YAtGRPbwv5d/QxzHslP4YGnUaxRw='"
        >>> script_sources('<script src="page.js"></script>')
        "'self' file:"
        >>> script_sources("")
        "'none'"
    """
    found = [_source(attributes, text) for attributes, text in _SCRIPT.findall(markup) if "json" not in attributes]
    return " ".join(dict.fromkeys(found)) or "'none'"


def _source(attributes: str, text: str) -> str:
    if "src=" in attributes:
        return "'self' file:"  # a page opened from a disk has no origin of its own in every browser
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
