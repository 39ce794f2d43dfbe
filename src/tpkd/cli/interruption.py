"""The message of a command that is interrupted: how to continue."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from tpkd.cli.console import say
from tpkd.termination import EXIT_CODE, TerminatedError, handled, raise_terminated

INTERRUPTED = 130
"""Shell exit code for a command interrupted from the keyboard."""


@contextmanager
def interruptible(outlook: Callable[[], str] = lambda: "the same command continues") -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into one line: what running the same command again will do, and that command.

    Args:
        outlook: called on interruption; says what the same command will do.
    """
    try:
        with handled(raise_terminated):
            yield
    except (KeyboardInterrupt, TerminatedError) as end:
        word, code = ("terminated", EXIT_CODE) if isinstance(end, TerminatedError) else ("interrupted", INTERRUPTED)
        rank = os.environ.get(
            "RANK"
        )  # under a launcher only the first process prints, and it does not know the launch command
        command = "" if rank is not None else f": {shlex.join(['tpkd', *sys.argv[1:]])}"
        if rank in (None, "0"):
            say(f"tpkd: {word}; {outlook()}{command}", error=True)
        raise typer.Exit(code) from None
