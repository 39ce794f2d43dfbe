"""`tpkd report`: the page and the tables of a comparison or a run."""

from pathlib import Path
from typing import Annotated

import typer

from tpkd.cli.console import say
from tpkd.cli.options import need_report
from tpkd.errors import extra


def report(
    directory: Annotated[Path, typer.Argument(help="What `tpkd compare` or `tpkd train` made.")],
) -> None:
    """Write one self-contained page, and every table as Markdown, CSV and LaTeX, from records alone.

    Studies, diagnoses and figures of the directory are shown where they are. The same records give the same bytes.

    Example: tpkd report runs/digits
    """
    need_report()
    with extra("train"):
        from tpkd.compare.reporting import write_report
    written = write_report(directory)
    say(f"page: {written[0]}", f"tables: {len(written) - 1} files in {directory / 'tables'}")
