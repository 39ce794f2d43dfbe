"""The page and the table files of several comparisons: built from records only, always the same bytes."""

from tpkd.compare.domains.reading import domain_sentences
from tpkd.compare.domains.record import DomainsRecords
from tpkd.compare.domains.tables import domain_tables
from tpkd.compare.owner.charts import estimate_charts
from tpkd.report.html import content_markup, page_template, sort_key
from tpkd.report.tables import WRITERS


def domains_files(records: DomainsRecords) -> dict[str, str]:
    """All files of a common report, relative path -> text. Needs the extra `report`."""
    tables = [table for table in domain_tables(records).values() if table is not None and table.rows]
    files = {f"tables/{table.name}.{kind}": write(table) for table in tables for kind, write in WRITERS.items()}
    return {"report.html": domains_page(records), **files}


def domains_page(records: DomainsRecords) -> str:
    """The page as HTML; every number carries its path in the records and its unrounded value."""
    charts = [
        (name, estimate_charts(found, prefix=f"domain-{place}-"))
        for place, (name, found) in enumerate(zip(records.names, records.domains, strict=True))
    ]
    return page_template("domains.html").render(
        names=records.names,
        sentences=domain_sentences(records),
        tables=domain_tables(records),
        charts=[(name, found) for name, found in charts if found],
        markup=content_markup,
        sort_key=sort_key,
    )
