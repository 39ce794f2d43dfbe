"""The charts of a comparison: a row for each method, a dot for each seed, a point where there is no line."""

import re

from compare.cases import cell, comparison
from tpkd.compare.charts import accuracy_chart, difference_chart, final_chart, learning_charts
from tpkd.compare.record import CellCurves, FinalState

MARKED = r"<g clip-path[^>]*>\s*<use"


def curves(epochs):
    values = tuple(0.5 / epoch for epoch in epochs)
    return CellCurves(epochs, values, values, values)


def test_one_monitored_epoch_is_a_point():
    cells = [cell(name, 42, 0.5, curves=curves((1,))) for name in ("ce", "kd", "dkd", "tpkd")]
    drawn = learning_charts(comparison(cells), str)
    assert len(drawn) == 3
    for chart, _ in drawn:
        assert len(re.findall(MARKED, chart.svg)) == 4
        assert ">0.96<" not in chart.svg  # epochs are whole numbers


def test_lines_of_several_epochs_have_no_markers():
    cells = [cell(name, 42, 0.5, curves=curves((1, 2, 3))) for name in ("ce", "tpkd")]
    for chart, _ in learning_charts(comparison(cells), str):
        assert not re.findall(MARKED, chart.svg)


def test_descriptions_have_the_numbers_of_the_picture():
    found = comparison([cell(name, seed, 0.5 + 0.1 * (name == "tpkd")) for name in ("kd", "tpkd") for seed in (1, 2)])
    assert "KD 50.00, TPKD 60.00. The largest is that of TPKD." in accuracy_chart(found, str.upper).description
    assert difference_chart(found, "kd", str.upper).description.endswith("TPKD +10.00.")
    assert difference_chart(found, "ce", str) is None


def test_what_leaves_the_picture_is_named():
    def left(value):
        return FinalState(0, 0.0, value, None, 1.0, 1.0, 1.0)

    assert final_chart(comparison([cell("ce", 42, 0.5)]), str) is None
    cells = [cell("tpkd", 42, 0.5, final=left(1.0)), cell("dkd", 42, 0.5, final=left(2.0))]
    chart, note = final_chart(comparison(cells), str.upper)
    assert note == "Outside the chart: DKD."
    assert "TPKD 1.000" in chart.description
