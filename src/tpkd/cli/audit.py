"""`tpkd audit`: students, a teacher, labels and their samples in; a folder for the browser out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tpkd.cli.console import say
from tpkd.cli.options import choose_form, need_report, split
from tpkd.cli.progress import display
from tpkd.errors import extra
from tpkd.geometry.constants import PAPER_BETA
from tpkd.report.numbers import count, nats, share

if TYPE_CHECKING:
    from tpkd.audit.record import AuditRecord


def audit(
    students: Annotated[
        list[Path],
        typer.Argument(help="Logits of one student each, (examples, classes); or one grid or run directory."),
    ],
    out: Annotated[Path, typer.Option(help="New folder for the page; an earlier audit there is replaced.")],
    teacher: Annotated[
        Path | None, typer.Option(help="Logits of the teacher, or its cache directory; a grid has its own.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Class numbers or names, -100 to leave a row out; runs and grids have theirs.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="The samples, as `data.name` of a configuration: digits, folder:PATH, csv:PATH, …; `none`: no samples."
        ),
    ] = None,
    part: Annotated[str, typer.Option("--split", help="Part of the data that the logits are of.")] = "test",
    cells: Annotated[
        str | None,
        typer.Option(help="Cells of a grid, such as ce-42,tpkd-42; default: ce, kd and tpkd, first seed."),
    ] = None,
    table: Annotated[
        Path | None, typer.Option(help="Also write every example here: .csv or .parquet, for Spotlight or FiftyOne.")
    ] = None,
    class_names: Annotated[Path | None, typer.Option(help="Names of the classes, as for `tpkd diagnose`.")] = None,
    ids: Annotated[Path | None, typer.Option(help="Names of the examples, as for `tpkd diagnose`.")] = None,
    log_probabilities: Annotated[
        bool, typer.Option("--log-probabilities", help="The files hold log-probabilities.")
    ] = False,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="The files hold probabilities.")] = False,
    label_column: Annotated[str | None, typer.Option(help="Column or array of the labels.")] = None,
    beta: Annotated[float, typer.Option(help="Of the protected step.", min=0)] = PAPER_BETA,
) -> None:
    """Look at what this teacher can still teach these students, example by example.

    Writes a folder whose `index.html` opens in a browser without a server or a network: a gallery to filter and sort
    by price, blocked, margin and disagreement, every example with both distributions, and for several students the
    answers lost and won between them.

    Example: tpkd audit kd.npy tpkd.npy --teacher teacher.npy --labels labels.npy --data digits --out audit
    """
    form = choose_form(probabilities=probabilities, log_probabilities=log_probabilities)
    need_report()
    with extra("train"):
        from tpkd.audit.run import PAGE_NAME, audit_files
        from tpkd.audit.sources import find_sources
    sources = find_sources(
        students, teacher, labels, data=data, split=part, cells=split(cells or ""), class_names=class_names, ids=ids
    )
    with display() as show:
        record = audit_files(
            sources,
            out,
            form=form,
            label_column=label_column,
            beta=beta,
            table=table,
            advance=lambda done, total: show.update("audit", done, total, f"audited {total:,} examples"),
        )
    say(*_found(record), *([f"table: {table}"] if table else []), f"page: {out / PAGE_NAME}")


def _found(record: "AuditRecord") -> list[str]:
    """What was found, a line for each student and each pair, and what there is to note."""
    lines = [
        f"{student.name}: {share(student.right / record.examples)} right, "
        f"{share(student.blocked / record.examples)} blocked, mean price {nats(student.transfer_cost)} nats, "
        f"{count(student.teacher_only)} examples that only the teacher has right"
        for student in record.students
    ]
    for pair in record.flips:
        before, after = record.students[pair.before].name, record.students[pair.after].name
        lines.append(
            f"{before} -> {after}: {count(pair.lost)} answers lost, {count(pair.won)} won, p = {pair.p_value:.3g}"
        )
    return [*lines, *record.notes]
