"""`tpkd figures`: the paper's illustrations into a directory."""

from pathlib import Path
from typing import Annotated

import typer

from tpkd.cli.console import say
from tpkd.errors import extra
from tpkd.figures.illustrations import draw_illustrations


def figures(directory: Annotated[Path, typer.Argument(help="Where to write; made if missing.")]) -> None:
    """Draw the paper's figures 1 to 3 as SVG and PNG, with their numbers in figures.json beside them.

    Needs the extra `report`.

    Example: tpkd figures figures/
    """
    with extra("report"):
        written = draw_illustrations(directory)
    say(*(f"written: {path}" for path in written))
