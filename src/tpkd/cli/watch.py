"""`tpkd watch`: the live page of a run or a grid."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tpkd.cli.console import say
from tpkd.cli.interruption import interruptible
from tpkd.cli.options import need_report
from tpkd.errors import InputError, extra

if TYPE_CHECKING:
    from tpkd.watch.watch import Watch


def watch(
    directory: Annotated[Path, typer.Argument(metavar="RUN_OR_GRID", help="What train or compare writes into.")],
    out: Annotated[
        Path | None, typer.Option(help="Keep this page current, with its data beside it, instead of serving it.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="With --out: write the page once and end.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the address; 0: a free one.")] = 0,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 2.0,
) -> None:
    """Show loss, accuracy, blocked share, conditional KL and price while a run or a grid goes on.

    Reads the metrics of the runs, and disturbs none of them. The page is served to this machine alone and reloads by
    itself; Ctrl-C ends it. With --out it is a file that any browser opens without a server. Needs the extra `report`.

    Example: tpkd watch runs/digits
    """
    if once and out is None:
        raise InputError("--once: expected --out, the page to write")
    if out is not None and port:
        raise InputError("--port: expected no --out, which needs no address")
    need_report()
    with extra("train"):
        from tpkd.watch.watch import Watch
    found = Watch(directory)
    with interruptible(lambda: "the runs go on; to watch them again"):
        if out is None:
            _serve(found, port, every)
        else:
            _write(found, out, every, once)


def _write(found: "Watch", out: Path, every: float, once: bool) -> None:
    from tpkd.watch.to_file import PageFile

    page = PageFile(out, found)
    page.update(every=None if once else every)
    try:
        say(f"page: {out}")
        while not once:
            time.sleep(every)
            found.refresh()
            page.update(every=every)
    finally:
        if not once:
            page.update(every=None)  # nobody writes it any more, and it says so


def _serve(found: "Watch", port: int, every: float) -> None:
    from tpkd.watch.server import LiveServer

    try:
        server = LiveServer(found, port=port, every=every)
    except OSError as error:
        raise InputError(f"--port {port}: {error.strerror or error}; 0 takes a free one") from error
    with server:
        say(f"page: {server.address}", "Ctrl-C ends it.")
        server.serve_forever()
