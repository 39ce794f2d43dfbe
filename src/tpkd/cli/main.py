"""The entry point: registers the verbs, and turns a user's mistake into one line and exit code 2."""

import errno
import os
import platform
import sys
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from tpkd.cli.audit import audit
from tpkd.cli.cache import cache
from tpkd.cli.check_loss import check_loss
from tpkd.cli.compare import compare
from tpkd.cli.demo import demo
from tpkd.cli.diagnose import diagnose
from tpkd.cli.export import export
from tpkd.cli.figures import figures
from tpkd.cli.methods import methods
from tpkd.cli.predict import predict
from tpkd.cli.report import report
from tpkd.cli.study import study
from tpkd.cli.train import train
from tpkd.cli.watch import watch
from tpkd.errors import InputError, shortened
from tpkd.files import check_path
from tpkd.remote_files import is_remote

app = typer.Typer(
    help="What can this teacher still teach this student without taking anything back, and at what price?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for verb in (diagnose, audit, train, watch, predict, export, compare, report, figures, methods, demo, check_loss):
    app.command()(verb)
app.add_typer(cache, name="cache")
app.add_typer(study, name="study")


def _print_version(asked: bool) -> None:
    if not asked:
        return
    from tpkd.objectives.kernels import cpu, gpu  # imported here because torch takes seconds to load

    kernel = "with" if cpu.has_kernel() else "without"
    reason = gpu.why_not()
    on_gpus = f"Triton {version('triton')}" if reason is None else f"tensor code ({reason})"
    typer.echo(
        f"tpkd {version('tpkd')} {kernel} its kernel, torch {version('torch')}, Python {platform.python_version()}\n"
        f"on GPUs: {on_gpus}"
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


_OF_THE_DISK = frozenset(
    getattr(errno, name)
    for name in (
        *("EACCES", "EPERM", "EROFS", "ENOSPC", "EDQUOT", "EFBIG", "EIO", "ESTALE", "ENODEV", "ENXIO"),
        *("ENAMETOOLONG", "ENOTDIR", "EISDIR", "ELOOP", "EMFILE", "ENFILE"),
    )
    if hasattr(errno, name)
)
"""System errors about a path or disk that no program can fix. A missing file is not among them: for a user's file its
reader reports it; anywhere else it is a bug."""


def main() -> None:
    """Run the command line. Exit 0: done; 1: a check failed; 2: the input is wrong.

    The boundary is drawn where things are read: `reading` (tpkd.files) and `keyed` (tpkd.config) put a name to what a
    file or a key caused, and raise it as an InputError. Nothing is guessed here from the type of an exception, because
    a ValueError from anywhere else is a bug, and keeps its trace.
    """
    try:
        _check_arguments(sys.argv[1:])
        app()
    except InputError as error:
        _refuse(error)
    except OSError as error:
        if error.errno not in _OF_THE_DISK or not isinstance(error.filename, str | bytes):
            raise
        _refuse(InputError(f"{os.fsdecode(error.filename)}: {error.strerror}"))


_READS_STORES = (["cache", "info"], ["cache", "verify"])


def _check_arguments(arguments: list[str]) -> None:
    """Refuse URLs before they become paths, which takes `//` for `/`; caches alone are read from stores."""
    for place, argument in enumerate(arguments):
        if place == 2 and arguments[:2] in _READS_STORES and is_remote(argument):
            continue
        option, _, value = argument.partition("=")
        path = value if option.startswith("--") else argument
        try:
            check_path(path or ".")  # an empty text may be the value of something else
        except InputError as error:
            raise InputError(f"argument {shortened(argument)!r}: {error}") from error


def _refuse(error: InputError) -> NoReturn:
    print(f"tpkd: {error}", file=sys.stderr)  # noqa: T201 (a command speaks)
    sys.exit(2)
