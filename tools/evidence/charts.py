"""The figures of the page: paired differences with both intervals, and training curves with bands."""

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tools.evidence.measures import difference
from tools.evidence.setting import Setting
from tpkd.compare.verdicts import measure
from tpkd.report.charts import BLUE, GREEN, GREY, INK, PURPLE, RUST, STYLE, inline_drawing, percent_axis
from tpkd.report.numbers import points

CURVES = {
    "ce": (INK, ":"),
    "kd": (RUST, "--"),
    "tpkd": (BLUE, "-"),
    "tpkd-t4": (GREEN, "-"),
    "tpkd-no-projection-t4": (PURPLE, "-."),
}
"""Methods whose training is drawn, with colour and dashes."""
_PANELS = {
    "blocked_share": "blocked pairs",
    "conditional_loss": "conditional KL (nats)",
    "label_loss": "label loss (nats)",
}


def forest(setting: Setting, references: Sequence[str] = ("ce", "kd")) -> str:
    """Accuracy of every method minus that of CE and of KD: thick over seeds, thin over seeds and test examples."""
    methods = [method.name for method in setting.record.methods]
    shown = {
        reference: {name: difference(setting, name, reference) for name in methods if name != reference}
        for reference in references
    }
    said = "; ".join(
        f"minus {setting.title(reference)}: "
        + ", ".join(f"{setting.title(name)} {points(each.over_both.mean)}" for name, each in found.items() if each)
        for reference, found in shown.items()
    )

    def paint(panels: Any) -> None:
        places = {name: len(methods) - place for place, name in enumerate(methods)}
        for axes, (reference, found) in zip(panels, shown.items(), strict=True):
            axes.axvline(0, color=INK, linewidth=1)
            for name, each in found.items():
                if each is None:
                    continue
                color = CURVES.get(name, (GREY, ""))[0]
                for part, width in ((each.over_both, 1.2), (each.over_seeds, 3.4)):
                    interval = part.interval()
                    if interval is not None:
                        ends = [100 * end for end in interval]
                        axes.plot(ends, [places[name]] * 2, color=color, linewidth=width, solid_capstyle="butt")
                axes.plot([100 * each.over_both.mean], [places[name]], "o", color=color, markersize=4)
            axes.set_xlabel(f"accuracy minus {setting.title(reference)} (points)")
            axes.set_yticks(list(places.values()), [setting.title(name) for name in places])
            axes.tick_params(axis="y", length=0, labelsize=8.5)
            axes.grid(visible=False, axis="y")
            axes.grid(axis="x")
            axes.set_ylim(0.4, len(methods) + 0.6)

    title = f"{setting.plan.title}: differences paired by seed"
    return _drawing(
        f"forest-{setting.plan.name}", title, f"Points. {said}.", paint, len(references), 1.2 + 0.24 * len(methods)
    )


def curves(setting: Setting) -> str:
    """Blocked share, conditional KL and label loss of training batches by epoch: means over seeds and 95 % bands."""
    found = {
        name: [cell.curves for cell in setting.record.cells if cell.method == name and cell.curves]
        for name in CURVES
        if any(cell.method == name and cell.curves for cell in setting.record.cells)
    }

    def paint(panels: Any) -> None:
        for axes, (field, label) in zip(panels, _PANELS.items(), strict=True):
            for name, cells in found.items():
                color, line = CURVES[name]
                epochs = cells[0].epochs
                by_epoch = [[getattr(cell, field)[place] for cell in cells] for place in range(len(epochs))]
                bands = [measure(values) for values in by_epoch]
                axes.plot(epochs, [band.mean for band in bands], color=color, linestyle=line, label=setting.title(name))
                limits = [band.interval() or (band.mean, band.mean) for band in bands]
                axes.fill_between(epochs, *np.array(limits).T, color=color, alpha=0.15, linewidth=0)
            axes.set_xlabel("epoch")
            axes.set_ylabel(label)
            if field == "blocked_share":
                percent_axis(axes)
        lines, names = panels[0].get_legend_handles_labels()
        panels[0].figure.legend(lines, names, loc="outside upper center", ncols=len(names), fontsize=8)

    ends = "; ".join(
        f"{setting.title(name)} from {100 * measure([c.blocked_share[0] for c in cells]).mean:.1f} to "
        f"{100 * measure([c.blocked_share[-1] for c in cells]).mean:.1f} % blocked"
        for name, cells in found.items()
    )
    title = f"{setting.plan.title}: training, by epoch"
    return _drawing(f"curves-{setting.plan.name}", title, f"Training batches. {ends}.", paint, 3, 2.9)


def _drawing(name: str, title: str, said: str, paint: Callable[[Any], None], panels: int, height: float) -> str:
    """An SVG file; the same records give the same bytes."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(8.4, height), layout="constrained")
        paint(figure.subplots(1, panels, sharey=panels == 2))
        drawing = io.StringIO()
        figure.savefig(drawing, format="svg", metadata={"Date": None})
    return inline_drawing(drawing.getvalue(), name, title, said) + ("" if drawing.getvalue().endswith("\n") else "\n")
