"""The charts of a diagnosis."""

from typing import Any

from tpkd.diagnosis.file_names import short_names, without_suffixes
from tpkd.diagnosis.marks import bound_of, signed, worded
from tpkd.diagnosis.reading import half_budget, half_price
from tpkd.diagnosis.record import DiagnosisRecord, Histogram, StudentDiagnosis
from tpkd.report.charts import BLUE, GREY, INK, PALE, RUST, Chart, bars_between, draw, percent_axis, trend_lines
from tpkd.report.numbers import nats, probability, share


def student_charts(student: StudentDiagnosis) -> dict[str, Chart]:
    """Every chart of one student, by name."""
    charts = (
        blocked_chart(student),
        confidence_chart(student),
        histogram_chart("conditional-loss", "conditional loss", student.conditional_loss, student),
        histogram_chart("transfer-cost", "transfer cost", student.transfer_cost, student),
        frontier_chart(student),
        decomposition_chart(student),
    )
    return {chart.name: chart for chart in charts}


def blocked_chart(student: StudentDiagnosis) -> Chart:
    """The blocked share against the student's confidence."""
    bins = [(index, part) for index, part in enumerate(student.confidence_bins) if part.examples]

    def paint(axes: Any) -> None:
        heights = [part.blocked_share or 0 for part in student.confidence_bins]
        bars_between(axes, _edges(student), {"blocked": heights})
        for index, part in enumerate(student.confidence_bins):
            if not part.examples:
                axes.text(index + 0.5, 0.02, "no\nexamples", ha="center", fontsize=7, color="#5b616b", rotation=90)
        percent_axis(axes, top=1)
        axes.set_xlabel(f"student's confidence in the {_correct(student)}")
        axes.set_ylabel("blocked examples, at most" if student.bounds else "blocked examples")

    first, last = bins[0][1], bins[-1][1]
    return draw(
        "blocked",
        "Blocked share by student confidence",
        f"Bars over {len(student.confidence_bins)} bins of confidence. From {first.low:g} to {first.high:g}, "
        f"{worded(student, 'blocked', 'share', first.blocked_share)} of the examples are blocked; from {last.low:g} to "
        f"{last.high:g}, {worded(student, 'blocked', 'share', last.blocked_share)}.",
        paint,
    )


def confidence_chart(student: StudentDiagnosis) -> Chart:
    """How confident student and teacher are."""
    bins, total = student.confidence_bins, student.known_examples

    def paint(axes: Any) -> None:
        student_shares = [part.examples / total for part in bins]
        teacher_shares = [part.teacher_examples / total for part in bins]
        bars_between(axes, _edges(student), {"student": student_shares, "teacher": teacher_shares})
        percent_axis(axes)
        axes.set_xlabel(f"confidence in the {_correct(student)}")
        axes.set_ylabel("examples")
        axes.legend(loc="best", fontsize=9)

    return draw(
        "confidence",
        "Confidence of student and teacher",
        f"Examples in bins of confidence. The mean is {probability(student.all['confidence'])} for the student "
        f"and {probability(student.all['teacher_confidence'])} for the teacher.",
        paint,
    )


def histogram_chart(name: str, quantity: str, histogram: Histogram, student: StudentDiagnosis) -> Chart:
    """The distribution of a quantity over all examples."""
    key = name.replace("-", "_")
    mean, bound = student.all[key], _at_least(student, key)
    end = histogram.width * len(histogram.counts)
    beyond = histogram.largest >= end

    def paint(axes: Any) -> None:
        left = [histogram.width * index for index in range(len(histogram.counts))]
        heights = [number / student.known_examples for number in histogram.counts]
        colors = [BLUE] * (len(left) - 1) + [PALE if beyond else BLUE]
        axes.bar(left, heights, width=0.92 * histogram.width, align="edge", color=colors)
        axes.axvline(mean, color=RUST, linewidth=1.4)
        place = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        text = f"mean {signed(student, key, 'nats', mean)}"
        axes.annotate(text, (mean, 1), xytext=(0, 3), ha="center", color=RUST, fontsize=9, **place)
        axes.set_xlim(0, end)
        percent_axis(axes)
        axes.set_xlabel(f"{quantity}{bound} (nats)" + (f"; pale: {left[-1]:g} and above" if beyond else ""))
        axes.set_ylabel("examples")

    return draw(
        name,
        f"Distribution of the {quantity}",
        f"Histogram over all examples from 0 to {end:g} nats, with the mean at {worded(student, key, 'nats', mean)} "
        f"and the largest value at {worded(student, key, 'nats', histogram.largest)} nats.",
        paint,
    )


def frontier_chart(student: StudentDiagnosis) -> Chart:
    """What is left to learn at each price."""
    curve, half = student.frontier, half_budget(student.frontier)

    def paint(axes: Any) -> None:
        axes.plot(curve.budgets, curve.values, color=BLUE)
        axes.fill_between(curve.budgets, curve.values, color=PALE, alpha=0.5, linewidth=0)
        if half and half <= curve.budgets[-1]:
            at = curve.values[0] / 2
            axes.plot([half, half], [0, at], color=RUST, linewidth=1.2, linestyle="--")
            axes.plot([half], [at], marker="o", color=RUST, markersize=5)
            axes.annotate(
                f"half for {'~ ' if student.bounds else ''}{half_price(curve)}",
                (half, at),
                xytext=(7, 5),
                textcoords="offset points",
                color=RUST,
                fontsize=9,
            )
        axes.set_ylim(bottom=0)
        axes.set_xlim(0, curve.budgets[-1])
        axes.set_xlabel("budget B: rise in log-odds allowed (nats)")
        axes.set_ylabel(f"mean V(B) left{_at_least(student, 'frontier.values')} (nats)")

    reached = "" if half is None else f" Half of it is left at a budget of {half_price(curve)}."
    return draw(
        "frontier",
        "What is left at each price",
        f"The least conditional loss that remains falls from "
        f"{worded(student, 'frontier.values', 'nats', curve.values[0])} nats without budget to "
        f"{worded(student, 'frontier.values', 'nats', curve.values[-1])} at {curve.budgets[-1]:g} nats.{reached}",
        paint,
    )


def decomposition_chart(student: StudentDiagnosis) -> Chart:
    """The teacher KL as confidence part and conditional part, and with soft labels the part among correct classes."""
    parts = student.decomposition
    rows = [("confidence", parts.confidence, GREY, "decomposition.confidence")]
    if parts.inside is not None:
        rows.append(("correct classes", parts.inside, RUST, "decomposition.confidence"))
    rows.append(("conditional", parts.conditional, BLUE, "decomposition.conditional"))
    total = sum(value for _, value, _, _ in rows)

    def paint(axes: Any) -> None:
        top, begin = len(rows), 0.0
        imitation = student.all["imitation_loss"]
        ends = [(top, total, signed(student, "imitation_loss", "nats", imitation))]
        for row, (_, value, color, key) in zip(range(top - 1, -1, -1), rows, strict=True):
            axes.barh([row], [value], left=[begin], color=color, height=0.62)
            begin += value
            ends.append((row, begin, signed(student, key, "nats", value)))
        axes.barh([top], [total], color=INK, height=0.62)
        for row, end, text in ends:
            axes.annotate(text, (end, row), xytext=(4, 0), textcoords="offset points", va="center")
        axes.set_xlim(0, (1.24 if student.bounds else 1.16) * total or 1)
        axes.locator_params(axis="x", nbins=5)
        axes.set_yticks(range(top, -1, -1), ["teacher KL", *(name for name, _, _, _ in rows)])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("mean over all examples (nats)")

    portion = worded(student, "decomposition.conditional_share", "share", parts.conditional_share)
    portion = "" if parts.conditional_share is None else f", {portion} of the whole"
    inside = "" if parts.inside is None else f", {nats(parts.inside)} are differences among the correct classes"
    return draw(
        "decomposition",
        "The teacher's KL in two parts" if parts.inside is None else "The teacher's KL in three parts",
        f"Of {worded(student, 'imitation_loss', 'nats', student.all['imitation_loss'])} nats, {nats(parts.confidence)} "
        f"are confidence{inside} and {worded(student, 'decomposition.conditional', 'nats', parts.conditional)} are "
        f"conditional{portion}.",
        paint,
    )


def trend_charts(record: DiagnosisRecord) -> tuple[Chart, ...]:
    """Four quantities over the students, in their order."""
    students = record.students
    names = without_suffixes(short_names([student.file for student in students]))
    shares: dict[str, list[float | None]] = {"blocked": [student.blocked_share for student in students]}

    def blocked_and_all(key: str) -> dict[str, list[float | None]]:
        blocked = "may be blocked" if students[0].bounds else "blocked"
        return {blocked: [s.blocked[key] for s in students], "all": [s.all[key] for s in students]}

    losses: dict[str, list[float | None]] = {
        "label loss": [student.all["label_loss"] for student in students],
        "teacher KL": [student.all["imitation_loss"] for student in students],
    }

    suffix = {"exact": "", "upper": ", at most", "lower": ", at least"}

    def chart(name: str, title: str, series: dict[str, list[float | None]], unit: str, key: str) -> Chart:
        bound = suffix[bound_of(students[0], key)]
        title = f"{title}{bound}"

        def paint(axes: Any) -> None:
            trend_lines(axes, names, series)
            axes.set_ylabel(f"blocked examples{bound}" if unit == "share" else "nats")
            if unit == "share":
                percent_axis(axes, top=1)

        write = share if unit == "share" else nats
        ends = "; ".join(f"{label}: {write(values[0])} to {write(values[-1])}" for label, values in series.items())
        return draw(f"trend-{name}", title, f"From the first student to the last. {ends}.", paint, size=(4.5, 2.6))

    left, cost = "conditional_loss", "transfer_cost"
    at_least = " (at least)" if students[0].bounds else ""
    return (
        chart("blocked", "Blocked share", shares, "share", "blocked"),
        chart("conditional-loss", "Conditional loss left, on average", blocked_and_all(left), "nats", left),
        chart("transfer-cost", "Price of exact transfer, on average", blocked_and_all(cost), "nats", cost),
        chart("losses", f"Label loss and teacher KL{at_least}, on average", losses, "nats", "label_loss"),
    )


def _edges(student: StudentDiagnosis) -> list[str]:
    low = [part.low for part in student.confidence_bins]
    return [f"{edge:g}".replace("0.", ".") for edge in (*low, student.confidence_bins[-1].high)]


def _correct(student: StudentDiagnosis) -> str:
    return "correct class" if student.decomposition.inside is None else "correct classes"


def _at_least(student: StudentDiagnosis, key: str) -> str:
    return ", at least" if bound_of(student, key) == "lower" else ""
