"""The page of a comparison and its tables as files: built from records only, always the same bytes."""

import io
from typing import Any

from tpkd.compare.charts import accuracy_chart, difference_chart, final_chart, learning_charts
from tpkd.compare.claims import claims_table
from tpkd.compare.owner.page import owner_context
from tpkd.compare.owner.tables import classes_table, confidence_table, confusions_table, methods_table, networks_table
from tpkd.compare.protocol_tables import protocol_table, settings_table, source_table
from tpkd.compare.reading import find, not_supported, supported
from tpkd.compare.record import ReportRecords
from tpkd.compare.sweep_tables import sweep_table
from tpkd.compare.tables import (
    ablation_table,
    application_table,
    cost_table,
    final_table,
    seeds_table,
    selection_table,
    stamped,
)
from tpkd.diagnosis.charts import blocked_chart, confidence_chart, frontier_chart
from tpkd.figures.charts import draw_feasibility
from tpkd.figures.record import FeasibilityIllustration
from tpkd.mechanism.charts import mechanism_charts
from tpkd.mechanism.tables import checks_table, mechanism_tables
from tpkd.report.charts import Chart, inline_drawing
from tpkd.report.html import content_markup, page_template, sort_key
from tpkd.report.numbers import plural
from tpkd.report.tables import WRITERS, Content, Table, Traced


def report_tables(records: ReportRecords) -> dict[str, Table | None]:
    """Every table of a comparison by name; None where the records have no data for it."""
    tables = {
        "claims": claims_table(records),
        "application": application_table(records),
        "ablation": ablation_table(records),
        "seeds": seeds_table(records),
        "cost": cost_table(records),
        "selection": selection_table(records),
        "final": final_table(records),
        "settings": settings_table(records),
        "protocol": protocol_table(records),
        "sources": source_table(records),
        "methods": methods_table(records),
        "classes": classes_table(records),
        "confusions": confusions_table(records),
        "confidence": confidence_table(records),
        "networks": networks_table(records),
    }
    return stamped(tables, records.comparison.stamp)


def report_files(records: ReportRecords, *, paper: bool = False) -> dict[str, str]:
    """All files of a report, relative path -> text: the page, and each table in every format.

    Needs the extra `report` (jinja2, matplotlib).

    Args:
        records: of a comparison or run.
        paper: whether the page is built around the paper's claims even if the protocol is not the paper's.
    """
    made = [
        *report_tables(records).values(),
        *mechanism_tables(records.studies, records.paper_domain, records.methods.title),
        checks_table(records.studies),
        sweep_of(records),
    ]
    tables = [table for table in made if table is not None and table.rows]
    files = {f"tables/{table.name}.{kind}": write(table) for table in tables for kind, write in WRITERS.items()}
    of_paper = paper or records.paper_domain is not None or not (records.assessment and records.assessment.methods)
    page = comparison_page(records) if of_paper else page_of_owner(records)
    return {"report.html": page, **files}


def comparison_page(records: ReportRecords) -> str:
    """The page around the paper's claims; every number carries its path in the records and its unrounded value."""
    record, title = records.comparison, records.methods.title
    reference = next((name for name in ("kd", "ce") if find(record, name) is not None), None)
    differences = difference_chart(record, reference, title) if reference is not None else None
    finished = any(method.mean is not None for method in record.methods)
    return page_template("comparison.html").render(
        **_shared(records),
        kicker="tpkd compare",
        heading="What does a student learn from its teacher, and what does it cost?",
        support_heading="What the data support",
        caution_heading="What they do not",
        contents=[],
        tiles=_tiles(records),
        supported=supported(records),
        not_supported=not_supported(records),
        accuracy_charts=_present(accuracy_chart(record, title) if finished else None, differences),
    )


def page_of_owner(records: ReportRecords) -> str:
    """The page around what the owner of a run asks; the paper's claims come last."""
    shared = _shared(records)
    return page_template("owner.html").render(**shared, **owner_context(records, shared))


def _shared(records: ReportRecords) -> dict[str, Any]:
    """What both layouts show."""
    record, title = records.comparison, records.methods.title
    return {
        "record": record,
        "seen": Traced(records).comparison,
        "markup": content_markup,
        "sort_key": sort_key,
        "level": f"{100 * record.confidence_level:g} %",
        "illustration": _illustration(records.illustrations.feasibility) if records.illustrations else None,
        "learning_charts": learning_charts(record, title),
        "mechanism_charts": mechanism_charts(records.studies.values(), title),
        "mechanism_tables": mechanism_tables(records.studies, records.paper_domain, title),
        "checks": checks_table(records.studies),
        "final_charts": _final_charts(records),
        "tables": report_tables(records),
        "sweep": sweep_of(records),
    }


def sweep_of(records: ReportRecords) -> Table | None:
    """The table of a sweep in the same directory; None where there was none."""
    return sweep_table(records.sweep, records.methods.title) if records.sweep is not None else None


def _present(*charts: Chart | None) -> list[Chart]:
    return [chart for chart in charts if chart is not None]


def _final_charts(records: ReportRecords) -> list[tuple[Chart, str]]:
    """Charts, each with the line below it."""
    left = final_chart(records.comparison, records.methods.title)
    charts = [left] if left is not None else []
    if records.diagnosis is not None:
        student = records.diagnosis.students[0]
        of = f"Of {student.file}."
        charts += [
            (chart, of) for chart in (frontier_chart(student), blocked_chart(student), confidence_chart(student))
        ]
    return charts


def _tiles(records: ReportRecords) -> list[tuple[Content, str, Content]]:
    """Key numbers: teacher, start, and the main objectives."""
    seen, record = Traced(records).comparison, records.comparison
    tiles: list[tuple[Content, str, Content]] = []
    if record.teacher is not None and record.teacher.accuracy is not None and record.start is not None:
        start: Content = ("the student starts at ", seen.start.accuracy("percent"), " %")
        tiles.append(((seen.teacher.accuracy("percent"), " %"), "accuracy of the teacher", start))
    for objective in ("ce", "kd", "tpkd"):
        for method, part in zip(record.methods, seen.methods, strict=True):
            if method.objective != objective or method.mean is None:
                continue
            more: Content = ""
            if method.versus:
                by_seed = f" points from {records.methods.title(method.versus[0].reference)} by seed"
                more = (part.versus[0].mean("points"), by_seed)
            seeds = plural(len(method.seeds), "seed")
            tiles.append(((part.mean("percent"), " %"), f"{records.methods.title(objective)}, mean of {seeds}", more))
    return tiles


def _illustration(illustration: FeasibilityIllustration) -> Chart:
    drawing = io.BytesIO()
    draw_feasibility(illustration, drawing, "svg")
    heading, numbers = "The idea in one example", illustration.numbers
    described = (
        f"A student at {illustration.student[0]:g} and a teacher at {illustration.teacher[0]:g} for the correct class. "
        f"Learning all of the conditional knowledge needs a confidence of {numbers['min_confidence']:.3f}."
    )
    svg: Any = inline_drawing(drawing.getvalue().decode(), "idea", heading, described)
    return Chart("idea", heading, described, svg)
