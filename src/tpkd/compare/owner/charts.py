"""The owner's charts: accuracy with both intervals, classes, reliability, risk and coverage, and learning curves."""

from collections.abc import Mapping, Sequence
from typing import Any

from tpkd.compare.charts import Emphasis, beyond, curve_chart, curve_top, mean_curves, objective_rows, rows_size
from tpkd.compare.owner.record import AnswerSummary, Assessment, Estimate
from tpkd.compare.owner.tables import TEACHER, chosen, ranked_classes
from tpkd.compare.record import Cell, ReportRecords
from tpkd.report.charts import EMPHASIS, GREEN, GREY, INK, PURPLE, Chart, draw, percent_axis
from tpkd.report.methods import Title
from tpkd.report.numbers import percent, points, share

_WEAKEST = 12
"""Classes of the chart of weak classes."""
_LONGEST_NAME = 26
_FEWEST = 10
"""Samples of a bin of the reliability chart; the accuracy of fewer is mostly chance."""
_BAND = {"linewidth": 7, "alpha": 0.25, "solid_capstyle": "butt"}


def emphasized(best: str | None) -> dict[str, tuple[str, Any]]:
    """Colours and dashes of the main objectives and of the best."""
    return dict(EMPHASIS) if best is None or best in EMPHASIS else {**EMPHASIS, best: (GREEN, "-.")}


def estimate_charts(records: ReportRecords, *, prefix: str = "") -> list[Chart]:
    """Accuracy, and difference from the reference, of every method: seeds, and both intervals.

    Args:
        records: a comparison.
        prefix: of the names of the charts, for a page that has those of several comparisons.
    """
    found = records.assessment
    if found is None or len(found.methods) < 2:
        return []
    dots = {method.objective: method.accuracies for method in records.comparison.methods}
    rows = {method.objective: (method.accuracy, dots[method.objective]) for method in found.methods}
    teacher = found.teacher.accuracy.mean if found.teacher is not None else None
    said = ", ".join(f"{records.methods.title(name)} {percent(estimate.mean)}" for name, (estimate, _) in rows.items())
    charts = [
        _estimates(
            records,
            f"{prefix}accuracy",
            "Test accuracy",
            f"Means in percent: {said}.",
            rows,
            "test accuracy (%)",
            teacher,
        )
    ]
    if found.reference is not None:
        reference = records.methods.title(found.reference)
        versus = {
            method.objective: pair.differences
            for method in records.comparison.methods
            for pair in method.versus
            if pair.reference == found.reference
        }
        pairs = {
            each.objective: (each.minus_reference, versus[each.objective])
            for each in found.methods
            if each.minus_reference is not None and each.objective in versus
        }
        said = ", ".join(f"{records.methods.title(name)} {points(pair.mean)}" for name, (pair, _) in pairs.items())
        heading, axis = f"Difference from {reference}", f"accuracy minus {reference} (percentage points)"
        described = f"Mean differences in points: {said}."
        charts.append(_estimates(records, f"{prefix}minus-{found.reference}", heading, described, pairs, axis, 0.0))
    return charts


def _estimates(
    records: ReportRecords,
    name: str,
    heading: str,
    described: str,
    rows: Mapping[str, tuple[Estimate, Sequence[float]]],
    axis: str,
    line: float | None,
) -> Chart:
    """One row per method: a band for the interval over test samples, a line for that over seeds, a dot per seed."""
    emphasis = emphasized(records.assessment.best if records.assessment else None)

    def paint(axes: Any) -> None:
        reach = []
        if line is not None:
            at_zero = line == 0
            axes.axvline(100 * line, color=INK if at_zero else PURPLE, linewidth=1, linestyle="-" if at_zero else ":")
        for objective, place, color in objective_rows(axes, rows, records.methods.title, emphasis):
            estimate, values = rows[objective]
            for low, high, style in (
                (estimate.sample_low, estimate.sample_high, _BAND),
                (estimate.seed_low, estimate.seed_high, {"linewidth": 1.4}),
            ):
                if low is not None and high is not None:
                    axes.plot([100 * low, 100 * high], [place, place], color=color, **style)
            heights = [place + 0.14 * (index - (len(values) - 1) / 2) for index in range(len(values))]
            dots = [100 * value for value in values]
            axes.plot(dots, heights, "o", markersize=3.6, color=color, linestyle="none")
            reach += dots + [100 * end for end in (estimate.sample_low, estimate.sample_high) if end is not None]
        if line is not None:
            reach.append(100 * line)
        margin = max(0.12 * (max(reach) - min(reach)), 0.25)
        axes.set_xlim(min(reach) - margin, max(reach) + margin)  # an interval over few seeds may be far wider
        axes.set_xlabel(axis)

    return draw(name, heading, f"One row per method, one dot per seed. {described}", paint, size=rows_size(rows))


def class_chart(records: ReportRecords) -> Chart | None:
    """The weakest classes of the best method, with the reference and the teacher beside it."""
    found = records.assessment
    if found is None or len(order := ranked_classes(found)) < 2:
        return None
    shown, lines = order[:_WEAKEST], _lines(records, found)
    names = [_short(found.classes[index].name) for index in shown]

    def paint(axes: Any) -> None:
        places = list(range(len(shown), 0, -1))
        for label, answers, color, _, marker in lines:
            rates = [100 * (answers.class_accuracy[index] or 0.0) for index in shown]
            axes.plot(rates, places, marker, color=color, markersize=5, linestyle="none", label=label, alpha=0.85)
        axes.set_yticks(places, names)
        axes.tick_params(axis="y", length=0, labelsize=8.5)
        axes.grid(axis="x")
        axes.set_xlabel("accuracy (%)")
        axes.legend(loc="best", fontsize=8.5)

    first = lines[0][1]
    said = ", ".join(f"{found.classes[index].name} {share(first.class_accuracy[index])}" for index in shown)
    described = f"One row per class, one mark per network. {lines[0][0]}: {said}."
    heading = "The weakest classes" if len(order) > len(shown) else "Classes, weakest first"
    return draw("classes", heading, described, paint, size=(4.8, 1.1 + 0.24 * len(shown)))


def confidence_charts(records: ReportRecords) -> list[Chart]:
    """Reliability, and risk against coverage, of the main methods and the teacher."""
    found = records.assessment
    if found is None or not (lines := _lines(records, found)):
        return []

    def paint_reliability(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=1)
        for label, answers, color, dashes, _ in lines:
            bins = [each for each in answers.reliability if each.examples >= _FEWEST]
            at = [each.confidence for each in bins], [each.accuracy for each in bins]
            axes.plot(*at, color=color, linestyle=dashes, marker="o", markersize=3, label=label)
        axes.set_xlabel("confidence")
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.6g} %")
        percent_axis(axes, top=1.02)
        axes.set_ylabel("accuracy")
        axes.legend(loc="upper left", fontsize=8.5)

    def paint_risk(axes: Any) -> None:
        for label, answers, color, dashes, _ in lines:
            axes.plot(answers.coverage, answers.risk, color=color, linestyle=dashes, label=label)
        axes.set_xlabel("share of samples answered, surest first")
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.6g} %")
        percent_axis(axes)
        axes.set_ylabel("wrong answers")
        axes.legend(loc="upper left", fontsize=8.5)

    errors = ", ".join(f"{label} {share(answers.calibration_error)}" for label, answers, *_ in lines)
    areas = ", ".join(f"{label} {answers.risk_coverage_area:.4f}" for label, answers, *_ in lines)
    return [
        draw(
            "reliability",
            "Is its confidence right?",
            f"Accuracy against confidence in bins with at least {_FEWEST} samples; on the diagonal both are equal, "
            f"below it the network is too sure. Calibration errors: {errors}.",
            paint_reliability,
        ),
        draw(
            "risk-coverage",
            "What if it may pass on hard samples?",
            f"Share of wrong answers among the surest samples, against their share of all. Areas: {areas}.",
            paint_risk,
        ),
    ]


_Line = tuple[str, AnswerSummary, str, Any, str]


def _lines(records: ReportRecords, found: Assessment) -> list[_Line]:
    """Networks of the charts: title, answers, colour, dashes and marker; the best first, the teacher last."""
    names = sorted(chosen(found), key=lambda name: name != found.best)
    markers = {"tpkd": "o", "kd": "s", "ce": "D"}
    lines: list[_Line] = []
    for name in names:
        method = found.find(name)
        assert method is not None
        assert method.answers is not None
        color, dashes = emphasized(found.best)[name]
        lines.append((records.methods.title(name), method.answers, color, dashes, markers.get(name, "^")))
    if found.teacher is not None and found.teacher.answers is not None:
        lines.append((TEACHER, found.teacher.answers, PURPLE, (0, (5, 1, 1, 1)), "x"))
    return lines


def progress_charts(records: ReportRecords) -> list[tuple[Chart, str]]:
    """Accuracies that were evaluated on the way, and training loss; each with a note."""
    record, title = records.comparison, records.methods.title
    emphasis = emphasized(records.assessment.best if records.assessment else None)
    charts = []
    shown = {
        "accuracy": ("Test accuracy while training", _accuracies, "No epoch was chosen by looking at it."),
        "validation": ("Validation accuracy while training", _validations, ""),
    }
    for name, (heading, curve_of, note) in shown.items():
        curves = mean_curves(record, curve_of)
        if any(len(curve) > 1 for curve in curves.values()):
            charts.append((_accuracy_curves(name, heading, curves, title, emphasis), note))
    losses = mean_curves(record, _losses)
    if losses:
        top = curve_top(losses)
        values = [value for curve in losses.values() for value in curve.values()]
        bottom = min(0.0, *values) if len(values) > 1 else min(0.0, values[0])
        clipped = beyond(title(name) for name, curve in losses.items() if max(curve.values()) > top)
        chart = curve_chart(
            "training-loss", "Training loss", "loss", losses, top, title, bottom=bottom, emphasis=emphasis
        )
        note = "Every method has a loss of its own: compare shapes, not heights." if len(losses) > 1 else ""
        charts.append((chart, " ".join(part for part in (note, clipped) if part)))
    return charts


def _accuracy_curves(
    name: str, heading: str, curves: Mapping[str, Mapping[int, float]], title: Title, emphasis: Emphasis
) -> Chart:
    values = [value for curve in curves.values() for value in curve.values()]
    room = max(0.08 * (max(values) - min(values)), 0.005)
    return curve_chart(
        name,
        heading,
        "share",
        curves,
        min(max(values) + room, 1.0),
        title,
        bottom=max(min(values) - room, 0.0),
        described="Means over seeds by epoch, one line per method.",
        emphasis=emphasis,
    )


def _losses(cell: Cell) -> dict[int, float]:
    found = cell.progress
    return {} if found is None else dict(zip(found.epochs, found.training_loss, strict=True))


def _accuracies(cell: Cell) -> dict[int, float]:
    found = cell.progress
    return {} if found is None else dict(zip(found.evaluated_epochs, found.accuracy, strict=True))


def _validations(cell: Cell) -> dict[int, float]:
    found = cell.progress
    return {} if found is None else dict(zip(found.validated_epochs, found.validation_accuracy, strict=True))


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
