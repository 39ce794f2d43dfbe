"""`tpkd methods`: the registry of objectives as a table."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tpkd.objectives import MethodDescription, describe


def methods() -> None:
    """List every objective: what it does, what it needs, its defaults, its source, and what is reconstruction.

    Example: tpkd methods
    """
    table = Table(title="Objectives", show_lines=True, show_header=False)
    table.add_column("name", no_wrap=True, style="bold")
    table.add_column("description", overflow="fold")
    for method in describe():
        table.add_row(method.name, _description(method))
    Console().print(table)


def _description(method: MethodDescription) -> Text:
    defaults = ", ".join(f"{name}={value}" for name, value in method.defaults.items())
    lines = {
        "needs": ", ".join(method.needs),
        "defaults": defaults,
        "source": method.source,
        "reconstruction": method.reconstruction,
    }
    text = Text(method.summary)
    for heading, line in lines.items():
        if line:
            text.append(f"\n{heading}: ", style="italic").append(line)
    return text
