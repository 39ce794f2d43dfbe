"""The live page, and the scripts with its data: the same ones from a disk and from an address."""

from tpkd.record import Record
from tpkd.report.html import page_template
from tpkd.report.scripts import json_text
from tpkd.watch.record import CurvesRecord, WatchRecord

INDEX_NAME = "cells.js"


def curves_name(number: int) -> str:
    """The name of the script with the curves of a cell.

    Example:
        >>> curves_name(12)
        'curves-12.js'
    """
    return f"curves-{number}.js"


def watch_page(title: str, folder: str) -> str:
    """The page as HTML text; it loads scripts from a folder beside it, and loads them again when they are new.

    Needs the extra `report` (jinja2).
    """
    return page_template("watch.html").render(title=title, folder=folder, index=INDEX_NAME)


def index_script(record: WatchRecord) -> str:
    """The script with all cells and their newest numbers."""
    return _script("cells", record)


def curves_script(record: CurvesRecord) -> str:
    """The script with the curves of one cell."""
    return _script("curves", record)


def _script(name: str, record: Record) -> str:
    return f"tpkdWatch.{name}({json_text(record.to_dict())});\n"
