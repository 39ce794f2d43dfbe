"""A table as data, written as Markdown, CSV or LaTeX; the page writes it as HTML."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tpkd.report.numbers import FORMATS


@dataclass(frozen=True)
class Number:
    """A value of a record: where it stands there, and how it is written."""

    path: str
    kind: str
    value: Any

    def __str__(self) -> str:
        """As people read it."""
        return FORMATS[self.kind](self.value)


Content = str | Number | tuple[str | Number, ...]
"""What stands in a cell."""

Row = tuple[Content, ...]


@dataclass(frozen=True)
class Column:
    """A heading; text is set to the left, numbers to the right."""

    title: str
    text: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of contents under headings; the first content of a row names it."""

    name: str
    """Of its files."""
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    emphasis: frozenset[int] = frozenset()
    """Rows to be set in bold."""


class Look:
    """Numbers of records by their paths."""

    def __init__(self, data: dict[str, Any]) -> None:
        """Look into records as plain data."""
        self.data = data

    def __call__(self, path: str, kind: str) -> Number:
        """The number at a path such as `comparison.methods.0.mean`."""
        value: Any = self.data
        for key in path.split("."):
            value = value[int(key)] if isinstance(value, list) else value[key]
        return Number(path, kind, value)


def parts(content: Content) -> tuple[str | Number, ...]:
    """The pieces of a cell."""
    return content if isinstance(content, tuple) else (content,)


def text(content: Content) -> str:
    """A cell as plain text."""
    return "".join(str(part) for part in parts(content))


def to_markdown(table: Table) -> str:
    """A pipe table with its caption and notes.

    Example:
        >>> table = Table("t", "Two rows.", (Column("method", text=True), Column("%")), (("CE", "1"), ("KD", "2")))
        >>> print(to_markdown(table), end="")
        Two rows.
        <BLANKLINE>
        | method | % |
        |:---|---:|
        | CE | 1 |
        | KD | 2 |
    """
    lines = [table.caption, "", _pipes([column.title for column in table.columns])]
    lines.append("|" + "|".join(":---" if column.text else "---:" for column in table.columns) + "|")
    for index, row in enumerate(table.rows):
        cells = [text(content) for content in row]
        lines.append(_pipes([f"**{cell}**" if cell else cell for cell in cells] if index in table.emphasis else cells))
    for note in table.notes:
        lines += ["", note]
    return "\n".join(lines) + "\n"


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def to_csv(table: Table) -> str:
    """Comma-separated values as the page shows them, with one line of headings."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(column.title for column in table.columns)
    writer.writerows([text(content) for content in row] for row in table.rows)
    return file.getvalue()


def to_latex(table: Table) -> str:
    """A `table` environment with booktabs rules."""
    alignment = "".join("l" if column.text else "r" for column in table.columns)
    rows = [" & ".join(latex_text(column.title) for column in table.columns) + r" \\", r"\midrule"]
    for index, row in enumerate(table.rows):
        cells = [latex_text(text(content)) for content in row]
        cells = [rf"\textbf{{{cell}}}" for cell in cells] if index in table.emphasis else cells
        rows.append(" & ".join(cells) + r" \\")
    notes = [rf"\par\smallskip\raggedright {latex_text(note)}" for note in table.notes]
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_text(table.caption)}}}",
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}",
        *notes,
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


_LATEX = {
    "\\": r"\textbackslash{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "Π": r"$\Pi$",
    "Φ": r"$\Phi$",
    "ℓ": r"$\ell$",
    "₀": "$_0$",
    "⁻": "$^-$",
    "³": "$^3$",
    "∞": r"$\infty$",
    "≥": r"$\geq$",
    "→": r"$\to$",
    "…": r"\dots{}",
    "<": "$<$",
    ">": "$>$",
}


def latex_text(plain: str) -> str:
    """Text in which LaTeX sees nothing to run.

    Example:
        >>> latex_text("50 % ± 1_000")
        '50 \\\\% $\\\\pm$ 1\\\\_000'
    """
    return "".join(_LATEX.get(character, character) for character in plain)
