"""`tpkd report`: the page and the tables of a comparison or a run, or of several in one table."""

from pathlib import Path
from typing import Annotated

import typer

from tpkd.cli.console import say
from tpkd.cli.options import need_report
from tpkd.errors import InputError, extra


def report(
    directories: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="What `tpkd compare` or `tpkd train` made; several give one table."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Where the page of several directories goes; default: report-NAME-NAME beside the first."),
    ] = None,
    paper: Annotated[
        bool, typer.Option("--paper", help="Begin with the paper's claims, even if the protocol is not the paper's.")
    ] = False,
) -> None:
    """Write one self-contained page, and every table as Markdown, CSV and LaTeX, from records alone.

    Of one directory, they go into it: accuracy with its uncertainty, classes, confidence, learning curves and cost
    first, the paper's claims last. Studies, diagnoses and figures of the directory are shown where they are. Several
    directories, such as two domains, give a table of methods × domains and a page of their own. The same records give
    the same bytes.

    Example: tpkd report runs/digits
    """
    need_report()
    with extra("train"):
        from tpkd.compare.domains.reporting import common_place, write_domains
        from tpkd.compare.reporting import write_report
    if len(directories) == 1:
        if out is not None:
            raise InputError("--out: expected several directories; the page of one goes into it")
        place, written = directories[0], write_report(directories[0], paper=paper)
    else:
        if paper:
            raise InputError("--paper: expected one directory; the page of several ends with the paper's claims")
        place = out or common_place(directories)
        written = write_domains(directories, place)
    say(f"page: {written[0]}", f"tables: {len(written) - 1} files in {place / 'tables'}")
