"""Charts say what the numbers say: ticks where they stand, and a point where there is no line."""

import re
from itertools import pairwise

from compare.cases import cell, comparison
from tpkd.compare.charts import learning_charts
from tpkd.compare.record import CellCurves
from tpkd.report.charts import draw, percent_axis

MARKED = r"<g clip-path[^>]*>\s*<use"


def ticks(top):
    """The labels of a vertical axis of shares, from the drawing."""

    def paint(axes):
        axes.set_xticks([])
        percent_axis(axes, top=top)

    return re.findall(r">([\d.,]+) %<", draw("ticks", "t", "d", paint).svg)


def test_ticks_of_shares_are_written_as_they_stand():
    """Equal distances have equal differences."""
    for top in (0.00011, 0.004, 0.01, 0.03, 0.1, 0.11, 0.25, 0.6, 1.0):
        values = [float(label) for label in ticks(top)]
        assert len(values) >= 3
        steps = [after - before for before, after in pairwise(values)]
        assert max(steps) - min(steps) < 1e-9 * max(steps), values


def curves(epochs):
    values = tuple(0.5 / epoch for epoch in epochs)
    return CellCurves(epochs, values, values, values)


def test_one_monitored_epoch_is_a_point():
    cells = [cell(name, 42, 0.5, curves=curves((1,))) for name in ("ce", "kd", "dkd", "tpkd")]
    drawn = learning_charts(comparison(cells))
    assert len(drawn) == 3
    for chart, _ in drawn:
        assert len(re.findall(MARKED, chart.svg)) == 4
        assert ">0.96<" not in chart.svg  # epochs are whole numbers


def test_lines_of_several_epochs_have_no_markers():
    cells = [cell(name, 42, 0.5, curves=curves((1, 2, 3))) for name in ("ce", "tpkd")]
    for chart, _ in learning_charts(comparison(cells)):
        assert not re.findall(MARKED, chart.svg)
