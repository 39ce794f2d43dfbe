"""What a user is told: one line that names what was expected, what came, and the way out."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager


class InputError(ValueError):
    """What the user handed in is wrong; the message is one line that names the file and what was expected.

    Names of files and keys may hold line breaks, terminal codes or halves of characters: those are shown as escapes.

    Example:
        >>> print(InputError("a\\nb: expected a file"))
        a\\nb: expected a file
    """

    def __init__(self, message: object) -> None:
        """Make the message one printable line."""
        super().__init__(_printable(str(message)))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def shortened(text: str, length: int = 200) -> str:
    """A text cut to a maximum length.

    Example:
        >>> shortened("abcdef", 4)
        'abc…'
    """
    return text if len(text) <= length else text[: length - 1] + "…"


def reason(error: BaseException) -> str:
    """The first line of what an exception says; its type where it says nothing.

    Example:
        >>> reason(ValueError("first\\nsecond")), reason(EOFError())
        ('first', 'EOFError')
    """
    return next(iter(str(error).splitlines()), type(error).__name__)


def some(names: Sequence[str], shown: int = 3) -> str:
    """The first of many names, and how many more there are.

    Example:
        >>> some(["a", "b", "c", "d"])
        'a, b, c and 1 more'
    """
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the closest known one, if any is close.

    Example:
        >>> did_you_mean("tkpd", ["ce", "kd", "tpkd"])
        '; did you mean tpkd?'
        >>> did_you_mean("quantum", ["ce", "kd", "tpkd"])
        ''
    """
    close = difflib.get_close_matches(shortened(name), list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Turn the absence of an optional library into one line that names the extra to install.

    Example:
        >>> with extra("train"):
        ...     import no_such_library
        Traceback (most recent call last):
            ...
        tpkd.errors.InputError: no_such_library is not installed: pip install 'tpkd[train]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is not installed: pip install 'tpkd[{name}]'") from error
