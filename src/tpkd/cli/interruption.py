"""What a command says when somebody stops it: how its work goes on."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from tpkd.cli.console import say
from tpkd.termination import EXIT_CODE, TerminatedError, handled, raise_terminated

INTERRUPTED = 130
"""The exit code of a shell for a command that was stopped from the keyboard."""


@contextmanager
def interruptible(outlook: Callable[[], str] = lambda: "the same command continues") -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into one line: what the same command will do, and that command.

    Args:
        outlook: asked when it happens.
    """
    try:
        with handled(raise_terminated):
            yield
    except (KeyboardInterrupt, TerminatedError) as end:
        word, code = ("terminated", EXIT_CODE) if isinstance(end, TerminatedError) else ("interrupted", INTERRUPTED)
        rank = os.environ.get("RANK")  # of the processes of a launcher the first one speaks, and knows not its command
        command = "" if rank is not None else f": {shlex.join(['tpkd', *sys.argv[1:]])}"
        if rank in (None, "0"):
            say(f"tpkd: {word}; {outlook()}{command}", error=True)
        raise typer.Exit(code) from None
