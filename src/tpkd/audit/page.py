"""The page of an audit: one HTML file that loads its data from the folder beside it."""

from tpkd.audit.record import AuditRecord
from tpkd.report.html import page_template


def audit_page(record: AuditRecord) -> str:
    """The page as HTML text; its numbers are those of `data/record.js` and the chunks. Needs the extra `report`."""
    return page_template("audit/page.html").render(record=record)
