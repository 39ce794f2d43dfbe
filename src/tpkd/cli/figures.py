"""`tpkd figures`: the paper's illustrations into a directory, and the page to play with them."""

from pathlib import Path
from typing import Annotated

import typer

from tpkd.cli.console import say
from tpkd.errors import extra
from tpkd.figures.illustrations import draw_illustrations
from tpkd.figures.interactive import write_explorer


def figures(
    directory: Annotated[Path, typer.Argument(help="Where to write; made if missing.")],
    interactive: Annotated[
        bool, typer.Option("--interactive", help="Also write explorer.html, to move student and teacher by hand.")
    ] = False,
) -> None:
    """Draw the paper's figures 1 to 3 as SVG and PNG, with their numbers in figures.json beside them.

    With --interactive also the explorer: one page, which needs no server and no network, where you drag a student and
    its teacher and see what is blocked, what is safe, and what it costs. Needs the extra `report`.

    Example: tpkd figures figures/ --interactive
    """
    with extra("report"):
        written = draw_illustrations(directory)
        if interactive:
            written.append(write_explorer(directory))
    say(*(f"written: {path}" for path in written))
