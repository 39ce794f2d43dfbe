"""Small charts as inline SVG: drawn by matplotlib, with a title and a description for screen readers."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

BLUE, RUST, GREY, INK, PALE = "#1d4e89", "#b8480f", "#8a8f98", "#20242b", "#c9d6e6"
GREEN, PURPLE = "#00735c", "#7d3c98"
SERIES = ((BLUE, "o", "-"), (RUST, "s", "--"))
EMPHASIS = {"tpkd": (BLUE, "-"), "kd": (RUST, "--"), "ce": (INK, ":")}
"""The main objectives, in colour; all others are grey."""

VARIABLES = {
    BLUE: "blue",
    RUST: "rust",
    GREEN: "green",
    PURPLE: "purple",
    INK: "ink",
    GREY: "grey",
    PALE: "pale",
    "#555c67": "soft",
    "#5b616b": "soft",
    "#c3c7cd": "line",
    "#d5dae1": "line",
    "#e4e7eb": "grid",
    "#ffffff": "paper",
    "#eef1f5": "wash",
    "#f1f3f6": "wash",
}
"""Colours that a page may replace, for a dark background: `--chart-NAME` of its style sheet."""

STYLE: Any = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # file and class names are not formulas
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#e4e7eb",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


@dataclass(frozen=True)
class Chart:
    """A figure of a page."""

    name: str
    title: str
    description: str
    """Text description for screen readers."""
    svg: str


def draw(
    name: str, title: str, description: str, paint: Callable[[Any], None], *, size: tuple[float, float] = (4.5, 3.0)
) -> Chart:
    """A chart from a function that paints on matplotlib axes.

    Deterministic: the same data give the same SVG. Ids start with `name`, and text stays text.
    """
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        axes.yaxis.set_major_locator(MaxNLocator(5))
        paint(axes)
        drawing = io.StringIO()
        figure.savefig(drawing, format="svg", transparent=True, metadata={"Date": None})
    return Chart(name, title, description, inline_drawing(drawing.getvalue(), name, title, description))


def inline_drawing(drawing: str, name: str, title: str, description: str) -> str:
    """The bare SVG element: sized by the page, with unique ids, a title and a description."""
    svg = drawing[drawing.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(url\(|href=")#', rf"\1#{name}-", svg)
    head, rest = svg.split(">", 1)
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    rest = re.sub(r"\b(fill|stroke): (#[0-9a-f]{6})\b", _replaceable, rest)
    label = f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(description)}</desc>'
    return f'{head} role="img" aria-labelledby="{name}-title {name}-desc">{label}{rest}'


def _replaceable(match: re.Match[str]) -> str:
    name = VARIABLES.get(match[2])
    return match[0] if name is None else f"{match[1]}: var(--chart-{name}, {match[2]})"


def bars_between(axes: Any, edges: Sequence[str], series: Mapping[str, Sequence[float]]) -> None:
    """One bar per series in each bin; ticks are at the bin edges."""
    width = 0.86 / len(series)
    for number, ((color, _, _), (label, heights)) in enumerate(zip(SERIES, series.items(), strict=False)):
        left = [index + 0.07 + number * width for index in range(len(heights))]
        axes.bar(left, heights, width=width, align="edge", color=color, label=label)
    axes.set_xticks(range(len(edges)), edges)
    axes.tick_params(axis="x", labelsize=8)
    axes.margins(x=0.01)


def percent_axis(axes: Any, top: float | None = None) -> None:
    """Format the vertical axis as percentages, starting at zero."""
    axes.set_ylim(0, top)
    # As many digits as a tick needs: with zero decimals, 2.5 would be shown as 2.
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.6g} %")


def trend_lines(axes: Any, names: Sequence[str], series: Mapping[str, Sequence[float | None]]) -> None:
    """One line per series over the students, in order; a missing value leaves a gap."""
    positions = range(1, len(names) + 1)
    for (color, marker, line), (label, values) in zip(SERIES, series.items(), strict=False):
        heights = [float("nan") if value is None else value for value in values]
        axes.plot(positions, heights, color=color, marker=marker, linestyle=line, markersize=4, label=label)
    axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
    if len(names) <= 6 and max(map(len, names)) <= 12:
        axes.set_xticks(positions, names)
    else:
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("student, in the order given")
    if len(series) > 1:
        axes.legend(loc="best", fontsize=9)
