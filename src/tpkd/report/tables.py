"""Tables as data, with writers for Markdown, CSV and LaTeX; pages render them as HTML."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tpkd.report.numbers import FORMATS


@dataclass(frozen=True)
class Number:
    """A value of a record: its path there and its format."""

    path: str
    kind: str
    value: Any

    def __str__(self) -> str:
        """The formatted value."""
        return FORMATS[self.kind](self.value)

    def __html__(self) -> str:
        """An HTML element with the path and the unrounded value; called by templates and markupsafe."""
        from markupsafe import Markup

        exact = "" if self.value is None else repr(self.value)
        return Markup('<data value="{}" data-path="{}">{}</data>').format(exact, self.path, str(self))


Content = str | Number | tuple[str | Number, ...]
"""The content of a table cell."""

Row = tuple[Content, ...]


@dataclass(frozen=True)
class Column:
    """A heading; text is left-aligned, numbers are right-aligned."""

    title: str
    text: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells under headings; the first cell of a row names it."""

    name: str
    """Base name of its files."""
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    emphasis: frozenset[int] = frozenset()
    """Indices of rows in bold."""


class Traced:
    """A record, or part of one, that knows its path, so that every number shown can name its source.

    Attributes, indices and keys lead to further parts; calling a part with a format returns a `Number`.

    Example:
        >>> from types import SimpleNamespace
        >>> seen = Traced(SimpleNamespace(methods=({"mean": 0.875},)), "comparison")
        >>> number = seen.methods[0]["mean"]("percent")
        >>> number.path, str(number)
        ('comparison.methods.0.mean', '87.50')
    """

    def __init__(self, value: Any, path: str = "") -> None:
        """Trace a record under a name; without a name, paths start at its fields."""
        self._value, self._path = value, path

    def __getattr__(self, name: str) -> "Traced":
        """A field."""
        return self._part(getattr(self._value, name), name)

    def __getitem__(self, key: int | str) -> "Traced":
        """An item of a tuple or dict."""
        return self._part(self._value[key], key)

    def __iter__(self) -> Iterator["Traced"]:
        """Every item of a tuple."""
        return (self[index] for index in range(len(self._value)))

    def __call__(self, kind: str) -> Number:
        """The number at this path."""
        return Number(self._path, kind, self._value)

    def _part(self, value: Any, key: int | str) -> "Traced":
        return Traced(value, f"{self._path}.{key}" if self._path else str(key))


def parts(content: Content) -> tuple[str | Number, ...]:
    """The parts of a cell."""
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
    """CSV with a header line; values are formatted as on the page."""
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
    """Text with every character that is special in LaTeX escaped.

    Example:
        >>> latex_text("50 % ± 1_000")
        '50 \\\\% $\\\\pm$ 1\\\\_000'
    """
    return "".join(_LATEX.get(character, character) for character in plain)


WRITERS = {"md": to_markdown, "csv": to_csv, "tex": to_latex}
"""Suffix of a table's file -> its writer."""
