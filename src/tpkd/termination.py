"""SIGTERM: the request to end, which a run answers between two steps, once it has saved."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

EXIT_CODE = 128 + signal.SIGTERM
"""What a shell reports for a command that SIGTERM ended."""

LAUNCHER_SECONDS = 1.0
"""Under a launcher, a second signal within this time is its echo of the first: a scheduler signals every process, and
the launcher passes on its own."""


_asked_at: float | None = None
"""When SIGTERM came, while a run has yet to answer it."""


class TerminatedError(SystemExit):
    """SIGTERM came. Where nothing catches it, the process ends with exit code 143 and without a traceback.

    Example:
        >>> TerminatedError("saved").code
        143
    """

    def __init__(self, text: str = "SIGTERM") -> None:
        """What the log says about it."""
        super().__init__(text)
        self.code = EXIT_CODE


def raise_terminated(number: int, frame: FrameType | None) -> None:
    """A handler: end as after Ctrl-C; a second signal ends the process at once."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise TerminatedError


@contextmanager
def handled(handler: Callable[[int, FrameType | None], Any]) -> Iterator[bool]:
    """Handle SIGTERM while the body runs, unless a program has a handler of its own or it runs in another thread.

    Yields:
        Whether the handler is in place.

    Example:
        >>> seen = []
        >>> with handled(lambda number, frame: seen.append(number)):
        ...     signal.raise_signal(signal.SIGTERM)
        >>> [signal.Signals(number).name for number in seen]
        ['SIGTERM']
    """
    before = signal.getsignal(signal.SIGTERM)
    main = threading.current_thread() is threading.main_thread()
    if not main or before not in (signal.SIG_DFL, raise_terminated):
        yield False
        return
    signal.signal(signal.SIGTERM, handler)
    try:
        yield True
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def deferred() -> Iterator[Callable[[], bool]]:
    """Note SIGTERM instead of ending; a second one ends the process at once.

    Yields:
        Tells whether the signal has come.

    Example:
        >>> with deferred() as asked:
        ...     before = asked()
        ...     signal.raise_signal(signal.SIGTERM)
        ...     before, asked()
        (False, True)
    """
    global _asked_at
    _asked_at = None
    patience = LAUNCHER_SECONDS if "RANK" in os.environ else 0.0

    def note(number: int, frame: FrameType | None) -> None:
        global _asked_at
        now = time.monotonic()
        if _asked_at is None:
            _asked_at = now
        elif now - _asked_at >= patience:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)

    try:
        with handled(note):
            yield lambda: _asked_at is not None
    finally:
        _asked_at = None


def request() -> None:
    """Ask this process to end, unless it has been asked already: then a second signal would end it at once."""
    if _asked_at is None:
        os.kill(os.getpid(), signal.SIGTERM)


def heed_parent_alone(worker: int = 0) -> None:
    """In a process that serves another one: end by SIGTERM of that one alone.

    A scheduler signals every process of a job. The server must not be gone before the run has saved; it ends with it.
    """
    parent = multiprocessing.parent_process()
    if parent is None or not hasattr(signal, "sigwaitinfo"):
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_end_with_signal_of, args=(parent.pid,), daemon=True).start()


def _end_with_signal_of(parent: int | None) -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent:
        pass
    os._exit(0)
