"""The page of a language model's diagnosis: one HTML file that needs nothing else."""

from tpkd.diagnosis.tokens.reading import CAVEAT, read_tokens
from tpkd.diagnosis.tokens.record import TokenDiagnosis
from tpkd.diagnosis.tokens.tables import group_tables
from tpkd.report.html import content_markup, page_template, sort_key
from tpkd.report.tables import Traced


def tokens_page(record: TokenDiagnosis) -> str:
    """The page as HTML text; what comes from the text of the user is escaped.

    Every number carries the path of its value in the record (`data-path`) and that value unrounded (`value`).
    Needs the extra `report` (jinja2).
    """
    return page_template("tokens.html").render(
        record=record,
        seen=Traced(record),
        reading=read_tokens(record),
        caveat=CAVEAT,
        tables=group_tables(record),
        markup=content_markup,
        sort_key=sort_key,
    )
