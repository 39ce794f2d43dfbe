"""What the pages share: templates that escape everything, and numbers that carry their source."""

from typing import TYPE_CHECKING

from tpkd.report.tables import Content, Number, parts

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup


def page_template(name: str) -> "Template":
    """A template of this package. Needs the extra `report`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("tpkd.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def content_markup(content: Content) -> "Markup":
    """A cell of a table: text is escaped, numbers are elements."""
    from markupsafe import Markup

    return Markup("").join(parts(content))


def sort_key(content: Content) -> str | None:
    """What a cell of several pieces is sorted by: its first number; None where its own text does."""
    numbers = [part for part in parts(content) if isinstance(part, Number)]
    if len(parts(content)) == 1 or not numbers:
        return None
    return "" if numbers[0].value is None else repr(numbers[0].value)
