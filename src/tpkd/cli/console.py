"""Plain output of a command."""

from rich.console import Console


def say(*lines: str, error: bool = False, end: str = "\n") -> None:
    """Print lines without markup, colours or wrapping, so that paths and commands can be copied.

    Args:
        lines: one or more.
        error: to standard error instead of standard output.
        end: after each line.
    """
    console = Console(stderr=error)
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True, end=end)
