"""What the pages share: templates that escape everything, and numbers that carry their source."""

from typing import TYPE_CHECKING, Any

from tpkd.report.tables import Content, Look, Number, parts

if TYPE_CHECKING:
    from jinja2 import Template


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


def number_markup(data: dict[str, Any], path: str, kind: str) -> Any:
    """The number at a path of a record, as an element with the path and the unrounded value."""
    return content_markup(Look(data)(path, kind))


def content_markup(content: Content) -> Any:
    """A cell of a table: text is escaped, numbers are elements."""
    from markupsafe import Markup, escape

    return Markup("").join(_element(part) if isinstance(part, Number) else escape(part) for part in parts(content))


def _element(number: Number) -> Any:
    from markupsafe import Markup

    exact = "" if number.value is None else repr(number.value)
    return Markup('<data value="{}" data-path="{}">{}</data>').format(exact, number.path, str(number))


def sort_key(content: Content) -> str | None:
    """What a cell of several pieces is sorted by: its first number; None where its own text does."""
    numbers = [part for part in parts(content) if isinstance(part, Number)]
    if len(parts(content)) == 1 or not numbers:
        return None
    return "" if numbers[0].value is None else repr(numbers[0].value)
