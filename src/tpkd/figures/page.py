"""The explorer: one HTML file in which a student and its teacher can be moved, and all else follows."""

from importlib.metadata import version

from tpkd.figures.record import ExplorerRecord
from tpkd.report.html import page_template


def explorer_page(record: ExplorerRecord) -> str:
    """The page as HTML text. Its script computes; it compares itself with the numbers of the record when it is opened.

    Needs the extra `report` (jinja2).
    """
    return page_template("explorer.html").render(record=record.to_dict(), version=version("tpkd"))
