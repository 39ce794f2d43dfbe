"""The entry point: registers the verbs, and turns a user's mistake into one line and exit code 2."""

import platform
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from tpkd.cli.cache import cache
from tpkd.cli.check_loss import check_loss
from tpkd.cli.compare import compare
from tpkd.cli.demo import demo
from tpkd.cli.diagnose import diagnose
from tpkd.cli.figures import figures
from tpkd.cli.methods import methods
from tpkd.cli.report import report
from tpkd.cli.study import study
from tpkd.cli.train import train
from tpkd.files import InputError

app = typer.Typer(
    help="What can this teacher still teach this student without taking anything back, and at what price?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for verb in (diagnose, train, compare, report, figures, methods, demo, check_loss):
    app.command()(verb)
app.add_typer(cache, name="cache")
app.add_typer(study, name="study")


def _print_version(asked: bool) -> None:
    if not asked:
        return
    from tpkd.objectives.tpkd_kernel import has_kernel  # not at the start: torch takes seconds to load

    kernel = "with" if has_kernel() else "without"
    typer.echo(
        f"tpkd {version('tpkd')} {kernel} its kernel, torch {version('torch')}, Python {platform.python_version()}"
    )
    raise typer.Exit


@app.callback()
def _options(
    version_: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print what is installed and exit."),
    ] = False,
) -> None:
    """Options that come before a verb."""


def main() -> None:
    """Run the command line. Exit 0: done; 1: a check failed; 2: the input is wrong."""
    try:
        app()
    except InputError as error:
        print(f"tpkd: {error}", file=sys.stderr)  # noqa: T201 (a command speaks)
        sys.exit(2)
