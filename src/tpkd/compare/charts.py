"""The charts of a comparison: one dot per seed, each mean with its interval."""

import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tpkd.compare.record import ComparisonRecord, MethodSummary, PairedDifference
from tpkd.report.charts import EMPHASIS, GREY, INK, Chart, draw, percent_axis
from tpkd.report.methods import Title
from tpkd.report.numbers import nats, percent, points, share

_PALE_LINE = "#c3c7cd"


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
        size=_size(rows),
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
        size=_size(pairs),
    )


def _size(rows: Collection[str]) -> tuple[float, float]:
    return 4.8, 0.9 + 0.27 * len(rows)


def _rows(axes: Any, objectives: Collection[str], title: Title) -> Iterator[tuple[str, int, str]]:
    """One row per objective, top to bottom: its name, position and colour."""
    places = range(len(objectives), 0, -1)
    for objective, place in zip(objectives, places, strict=True):
        yield objective, place, EMPHASIS.get(objective, (GREY, "-"))[0]
    axes.set_yticks(list(places), list(map(title, objectives)))
    axes.tick_params(axis="y", length=0, labelsize=8.5)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x")


def _dots(
    axes: Any, rows: Mapping[str, tuple[Sequence[float], MethodSummary | PairedDifference]], title: Title
) -> None:
    """One dot per seed, the mean and its interval, in percent."""
    reach = []
    for objective, place, color in _rows(axes, rows, title):
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


def learning_charts(record: ComparisonRecord, title: Title) -> list[tuple[Chart, str]]:
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
        curves = {objective: _mean_curve(record, objective, field) for objective in record.objectives}
        curves = {objective: curve for objective, curve in curves.items() if curve}
        if curves:
            top = 1.0 if unit == "share" else _top(curves)
            note = _beyond(title(name) for name, curve in curves.items() if max(curve.values()) > top)
            charts.append((_learning_chart(field.replace("_", "-"), heading, unit, curves, top, title), note))
    return charts


def _beyond(titles: Iterable[str]) -> str:
    names = ", ".join(titles)
    return f"Outside the chart: {names}." if names else ""


def _top(curves: Mapping[str, Mapping[int, float]]) -> float:
    """Upper limit of a chart: above the main objectives, if present."""
    chosen = [curve for objective, curve in curves.items() if objective in EMPHASIS] or list(curves.values())
    return 1.25 * max(max(curve.values()) for curve in chosen)


def _learning_chart(
    name: str, heading: str, unit: str, curves: Mapping[str, Mapping[int, float]], top: float, title: Title
) -> Chart:
    write = share if unit == "share" else nats

    def line(axes: Any, curve: Mapping[int, float], **style: Any) -> None:
        # A line with a single point would be invisible.
        axes.plot(curve.keys(), curve.values(), marker="o" if len(curve) == 1 else None, markersize=5, **style)

    def paint(axes: Any) -> None:
        first = True
        for objective, curve in curves.items():
            if objective not in EMPHASIS:
                line(axes, curve, color=_PALE_LINE, linewidth=1, label="others" if first else None)
                first = False
        for objective, (color, dashes) in EMPHASIS.items():
            if objective in curves:
                line(axes, curves[objective], color=color, linestyle=dashes, label=title(objective))
        epochs = sorted({epoch for curve in curves.values() for epoch in curve})
        if len(epochs) == 1:
            axes.set_xticks(epochs)
        axes.set_xlabel("epoch")
        if unit == "share":
            percent_axis(axes, top=top)
        else:
            axes.set_ylim(0, top)
            axes.set_ylabel("nats")
        axes.legend(loc="best", fontsize=8.5)

    ends = ", ".join(f"{title(objective)} {write(list(curve.values())[-1])}" for objective, curve in curves.items())
    description = f"Means over training batches and seeds by epoch, one line per method. At the end: {ends}."
    return draw(f"curve-{name}", heading, description, paint)


def _mean_curve(record: ComparisonRecord, objective: str, field: str) -> dict[int, float]:
    """Epoch -> mean over seeds, for epochs that every finished seed has."""
    cells = [cell.curves for cell in record.cells if cell.objective == objective and cell.curves is not None]
    if not cells:
        return {}
    points_of = [dict(zip(curves.epochs, getattr(curves, field), strict=True)) for curves in cells]
    shared = sorted(set.intersection(*(set(curve) for curve in points_of)))
    return {epoch: statistics.fmean(curve[epoch] for curve in points_of) for epoch in shared}


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
        for objective, place, color in _rows(axes, left, title):
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
        size=_size(left),
    )
    return chart, _beyond(title(name) for name, values in left.items() if max(values) > end)
