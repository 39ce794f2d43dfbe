"""The charts of a comparison: one dot per seed, each mean with its interval."""

import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tpkd.compare.record import Cell, ComparisonRecord, MethodSummary, PairedDifference
from tpkd.report.charts import EMPHASIS, GREY, INK, Chart, draw, percent_axis
from tpkd.report.methods import Title
from tpkd.report.numbers import nats, percent, points, share

_PALE_LINE = "#c3c7cd"

Emphasis = Mapping[str, tuple[str, Any]]
"""Objective -> colour and dashes."""


def accuracy_chart(record: ComparisonRecord, title: Title) -> Chart:
    """Accuracy by method: one dot per seed, and the interval of the mean."""
    rows = {method.objective: method for method in record.methods if method.mean is not None}
    best = max(rows.values(), key=lambda method: method.mean or 0.0)
    said = ", ".join(f"{title(name)} {percent(method.mean)}" for name, method in rows.items())

    def paint(axes: Any) -> None:
        _dots(axes, {name: (method.accuracies, method) for name, method in rows.items()}, title)
        axes.set_xlim(max(axes.get_xlim()[0], 0), min(axes.get_xlim()[1], 100))
        axes.set_xlabel("test accuracy (%)")

    return draw(
        "accuracy",
        f"Accuracy {record.whose}, seed by seed",
        f"One row per method, one dot per seed, and the interval of the mean. Means in percent: {said}. "
        f"The largest is that of {title(best.objective)}.",
        paint,
        size=rows_size(rows),
    )


def difference_chart(record: ComparisonRecord, reference: str, title: Title) -> Chart | None:
    """Accuracy minus a reference, per seed; None without the reference."""
    pairs = {
        method.objective: pair for method in record.methods for pair in method.versus if pair.reference == reference
    }
    if not pairs:
        return None
    said = ", ".join(f"{title(name)} {points(pair.mean)}" for name, pair in pairs.items())

    def paint(axes: Any) -> None:
        axes.axvline(0, color=INK, linewidth=1)
        _dots(axes, {name: (pair.differences, pair) for name, pair in pairs.items()}, title)
        axes.set_xlabel(f"accuracy minus {title(reference)} (percentage points)")

    return draw(
        f"minus-{reference}",
        f"Difference to {title(reference)}, paired by seed",
        f"One row per method, one dot per seed, and the interval of the mean. Mean differences in points: {said}.",
        paint,
        size=rows_size(pairs),
    )


def rows_size(rows: Collection[str]) -> tuple[float, float]:
    """Size of a chart with a row for each of these."""
    return 4.8, 0.9 + 0.27 * len(rows)


def objective_rows(
    axes: Any, objectives: Collection[str], title: Title, emphasis: Emphasis = EMPHASIS
) -> Iterator[tuple[str, int, str]]:
    """One row per objective, top to bottom: its name, position and colour."""
    places = range(len(objectives), 0, -1)
    for objective, place in zip(objectives, places, strict=True):
        yield objective, place, emphasis.get(objective, (GREY, "-"))[0]
    axes.set_yticks(list(places), list(map(title, objectives)))
    axes.tick_params(axis="y", length=0, labelsize=8.5)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x")


def _dots(
    axes: Any, rows: Mapping[str, tuple[Sequence[float], MethodSummary | PairedDifference]], title: Title
) -> None:
    """One dot per seed, the mean and its interval, in percent."""
    reach = []
    for objective, place, color in objective_rows(axes, rows, title):
        values, found = rows[objective]
        # Offset the seeds so that equal values stay visible.
        heights = [place + 0.14 * (index - (len(values) - 1) / 2) for index in range(len(values))]
        if found.low is not None and found.high is not None:
            axes.plot([100 * found.low, 100 * found.high], [place, place], color=color, linewidth=1.4, alpha=0.55)
        if found.mean is not None:
            axes.plot([100 * found.mean], [place], marker="|", markersize=11, color=color)
        dots = [100 * value for value in values]
        axes.plot(dots, heights, "o", markersize=3.6, color=color, linestyle="none")
        reach += dots
    margin = max(0.35 * (max(reach) - min(reach)), 0.5)
    axes.set_xlim(min(reach) - margin, max(reach) + margin)  # an interval over few seeds may be far wider


def learning_charts(record: ComparisonRecord, title: Title, emphasis: Emphasis = EMPHASIS) -> list[tuple[Chart, str]]:
    """Label loss, conditional loss and blocked share during training, each with a note on clipped curves.

    Empty if nothing was monitored.
    """
    kinds = {
        "label_loss": ("Label loss while training", "nats"),
        "conditional_loss": ("Conditional KL while training", "nats"),
        "blocked_share": ("Blocked share while training", "share"),
    }
    charts = []
    for field, (heading, unit) in kinds.items():
        curves = mean_curves(record, partial(_curve, field=field))
        if curves:
            top = 1.0 if unit == "share" else curve_top(curves)
            note = beyond(title(name) for name, curve in curves.items() if max(curve.values()) > top)
            name = field.replace("_", "-")
            charts.append((curve_chart(name, heading, unit, curves, top, title, emphasis=emphasis), note))
    return charts


def beyond(titles: Iterable[str]) -> str:
    """A note on curves or points that a chart cuts off; empty if there are none."""
    names = ", ".join(titles)
    return f"Outside the chart: {names}." if names else ""


def curve_top(curves: Mapping[str, Mapping[int, float]]) -> float:
    """Upper limit of a chart: above the main objectives, if present."""
    chosen = [curve for objective, curve in curves.items() if objective in EMPHASIS] or list(curves.values())
    return 1.25 * max(max(curve.values()) for curve in chosen)


def curve_chart(
    name: str,
    heading: str,
    unit: str,
    curves: Mapping[str, Mapping[int, float]],
    top: float,
    title: Title,
    *,
    bottom: float = 0.0,
    described: str = "Means over training batches and seeds by epoch, one line per method.",
    emphasis: Emphasis = EMPHASIS,
) -> Chart:
    """One line per objective over the epochs.

    Args:
        name: of the chart.
        heading: its title.
        unit: `share` for percentages; otherwise the label of the vertical axis.
        curves: objective -> epoch -> value.
        top: upper end of the vertical axis.
        title: names of objectives for people.
        bottom: lower end of the vertical axis.
        described: what the values are, for screen readers.
        emphasis: objectives in colour; all others are grey.
    """
    write = share if unit == "share" else nats

    def line(axes: Any, curve: Mapping[int, float], **style: Any) -> None:
        # A line with a single point would be invisible.
        axes.plot(curve.keys(), curve.values(), marker="o" if len(curve) == 1 else None, markersize=5, **style)

    def paint(axes: Any) -> None:
        first = True
        for objective, curve in curves.items():
            if objective not in emphasis:
                line(axes, curve, color=_PALE_LINE, linewidth=1, label="others" if first else None)
                first = False
        for objective, (color, dashes) in emphasis.items():
            if objective in curves:
                line(axes, curves[objective], color=color, linestyle=dashes, label=title(objective))
        epochs = sorted({epoch for curve in curves.values() for epoch in curve})
        if len(epochs) == 1:
            axes.set_xticks(epochs)
        axes.set_xlabel("epoch")
        if unit == "share":
            percent_axis(axes, top=top)
            axes.set_ylim(bottom, top)
        else:
            axes.set_ylim(bottom, top)
            axes.set_ylabel(unit)
        axes.legend(loc="best", fontsize=8.5)

    ends = ", ".join(f"{title(objective)} {write(list(curve.values())[-1])}" for objective, curve in curves.items())
    return draw(f"curve-{name}", heading, f"{described} At the end: {ends}.", paint)


def mean_curves(
    record: ComparisonRecord, curve_of: Callable[[Cell], Mapping[int, float]]
) -> dict[str, dict[int, float]]:
    """Objective -> epoch -> mean over seeds, for epochs that every seed with a curve has.

    Args:
        record: the comparison.
        curve_of: epoch -> value of a cell; empty where it has no curve.
    """
    means = {}
    for objective in record.objectives:
        curves = [curve for cell in record.cells if cell.objective == objective and (curve := curve_of(cell))]
        shared = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
        means[objective] = {epoch: statistics.fmean(curve[epoch] for curve in curves) for epoch in shared}
    return {objective: curve for objective, curve in means.items() if curve}


def _curve(cell: Cell, field: str) -> dict[int, float]:
    return {} if cell.curves is None else dict(zip(cell.curves.epochs, getattr(cell.curves, field), strict=True))


def final_chart(record: ComparisonRecord, title: Title) -> tuple[Chart, str] | None:
    """Remaining conditional KL of the final students on the test split, with a note on clipped points.

    None without a teacher.
    """
    left = {
        method.objective: [
            cell.final.conditional_loss
            for cell in record.cells
            if cell.objective == method.objective and cell.final is not None
        ]
        for method in record.methods
        if method.final
    }
    if not left:
        return None
    chosen = [values for objective, values in left.items() if objective in EMPHASIS] or list(left.values())
    end = 1.5 * max(map(max, chosen))

    def paint(axes: Any) -> None:
        for objective, place, color in objective_rows(axes, left, title):
            values = left[objective]
            axes.plot(values, [place] * len(values), "o", markersize=4, color=color, linestyle="none")
        axes.set_xlim(0, end)
        axes.set_xlabel("conditional KL left on the test split (nats)")

    said = ", ".join(f"{title(name)} {nats(statistics.fmean(values))}" for name, values in left.items())
    chart = draw(
        "final-left",
        "What the final students have left to learn",
        f"One row per method, one dot per seed. Means in nats: {said}.",
        paint,
        size=rows_size(left),
    )
    return chart, beyond(title(name) for name, values in left.items() if max(values) > end)
