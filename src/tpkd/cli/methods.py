"""`tpkd methods`: the registry of objectives as a table."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tpkd.objectives import MethodDescription, describe


def methods() -> None:
    """List every objective: what it does, needs and takes, its defaults, its source, and what is reconstruction.

    Example: tpkd methods
    """
    table = Table(title="Objectives", show_lines=True, show_header=False)
    table.add_column("name", no_wrap=True, style="bold")
    table.add_column("description", overflow="fold")
    for method in describe():
        table.add_row(method.name, _description(method))
    Console().print(table)


def _also_takes(method: MethodDescription) -> Iterator[str]:
    if method.takes_soft_labels:
        yield "soft labels"
    if method.takes_top_k and "teacher_logits" in method.needs:
        yield "a truncated teacher"
    if method.teacher_average is not None and "teacher_logits" in method.needs:
        yield f"several teachers (averaged {method.teacher_average})"


def _description(method: MethodDescription) -> Text:
    defaults = ", ".join(f"{name}={value}" for name, value in method.defaults.items())
    lines = {
        "needs": ", ".join(method.needs),
        "defaults": defaults,
        "settings": method.settings_note,
        "also takes": ", ".join(_also_takes(method)),
        "source": method.source,
        "reconstruction": method.reconstruction,
    }
    text = Text(method.summary)
    for heading, line in lines.items():
        if line:
            text.append(f"\n{heading}: ", style="italic").append(line)
    return text
