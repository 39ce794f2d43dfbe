"""The charts of the four mechanism studies."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from tpkd.mechanism.record import BlockingRecord, CertificatesRecord, ContinuationRecord, ExactHeadRecord, StudyRecord
from tpkd.report.charts import BLUE, EMPHASIS, RUST, SERIES, Chart, draw, percent_axis
from tpkd.report.methods import Title
from tpkd.report.numbers import milli, nats, share


def mechanism_charts(studies: Iterable[StudyRecord], title: Title) -> list[Chart]:
    """One chart per study."""
    painters: dict[type[StudyRecord], Callable[[Any], Chart]] = {
        BlockingRecord: blocking_chart,
        ExactHeadRecord: exact_chart,
        CertificatesRecord: certificate_chart,
        ContinuationRecord: partial(continuation_chart, title=title),
    }
    return [painters[type(record)](record) for record in studies]


def blocking_chart(record: BlockingRecord) -> Chart:
    """The blocked share of each state and split."""

    def paint(axes: Any) -> None:
        for (color, marker, line), split in zip(SERIES, record.splits, strict=False):
            shares = [state.blocked_share for state in split.states]
            places = range(1, len(shares) + 1)
            axes.plot(
                places, shares, color=color, marker=marker, linestyle=line, markersize=4, label=f"{split.split} samples"
            )
        states = record.splits[0].states
        axes.set_xticks(range(1, len(states) + 1), [state.state.name for state in states])
        percent_axis(axes, top=1)
        axes.set_ylabel("blocked pairs")
        axes.legend(loc="best", fontsize=9)

    said = "; ".join(
        f"{split.split}: " + ", ".join(f"{state.state.name} {share(state.blocked_share)}" for state in split.states)
        for split in record.splits
    )
    return draw("blocking", "Blocking in ordinary training", f"Share of pairs of samples and views. {said}.", paint)


def exact_chart(record: ExactHeadRecord) -> Chart:
    """The gain of every batch in exact head steps."""
    gains = {state.state.name: [batch.gain for batch in state.batches] for state in record.states}
    said = "Gain of TPKD beyond CE, one dot per batch"
    return _strips("exact-gain", "Exact head steps: gain of each batch", said, gains, BLUE)


def certificate_chart(record: CertificatesRecord) -> Chart:
    """The gain of every native pair."""
    gains = {state.state.name: [batch.gain for batch in state.batches] for state in record.states}
    said = "Gain of TPKD beyond compensation only after one training iteration, one dot per batch"
    return _strips("native-gain", "Native pairs: gain of each batch", said, gains, RUST)


def _strips(name: str, heading: str, said: str, gains: Mapping[str, Sequence[float]], color: str) -> Chart:
    def paint(axes: Any) -> None:
        axes.axhline(0, color="#20242b", linewidth=1)
        for place, values in enumerate(gains.values(), start=1):
            count = max(len(values) - 1, 1)
            spread = [place - 0.25 + 0.5 * index / count for index in range(len(values))]
            axes.plot(spread, [1000 * value for value in values], "o", markersize=3.6, color=color, linestyle="none")
        axes.set_xticks(range(1, len(gains) + 1), list(gains))
        axes.set_xlim(0.4, len(gains) + 0.6)
        axes.set_ylabel("gain (10⁻³ nats)")

    ranges = "; ".join(f"{state}: {milli(min(values))} to {milli(max(values))}" for state, values in gains.items())
    return draw(name, heading, f"{said}. In thousandths of a nat, {ranges}.", paint)


def continuation_chart(record: ContinuationRecord, title: Title) -> Chart:
    """Conditional KL along the continuation."""

    def paint(axes: Any) -> None:
        for (_, marker, _), curve in zip((*SERIES, ("", "^", "")), record.curves, strict=False):
            color, line = EMPHASIS.get(curve.objective, (RUST, "--"))
            x = [point.iteration for point in curve.points]
            y = [point.conditional_loss for point in curve.points]
            axes.plot(x, y, color=color, linestyle=line, marker=marker, markersize=4, label=title(curve.objective))
        axes.set_xlabel("iterations")
        axes.set_ylabel("conditional KL (nats)")
        axes.legend(loc="best", fontsize=9)

    said = ", ".join(f"{title(curve.objective)} {nats(curve.points[-1].conditional_loss)}" for curve in record.curves)
    return draw(
        "continuation",
        f"The next {record.iterations} iterations from {record.state.name}",
        f"Conditional KL of observed samples from {nats(record.start)} nats at the start; at the end {said}.",
        paint,
    )
