"""Shared by all pages: templates with autoescaping, and the markup of table cells."""

from typing import TYPE_CHECKING

from tpkd.report.scripts import json_element, script_sources
from tpkd.report.tables import Content, Number, parts

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup


def page_template(name: str) -> "Template":
    """Load a template of this package. Needs the extra `report`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("tpkd.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(json_element=json_element, script_sources=script_sources)
    return environment.get_template(name)


def content_markup(content: Content) -> "Markup":
    """The HTML of a table cell: text is escaped, numbers become elements."""
    from markupsafe import Markup

    return Markup("").join(parts(content))


def sort_key(content: Content) -> str | None:
    """Sort key of a cell with several parts: its first number; None if its text is enough."""
    numbers = [part for part in parts(content) if isinstance(part, Number)]
    if len(parts(content)) == 1 or not numbers:
        return None
    return "" if numbers[0].value is None else repr(numbers[0].value)
