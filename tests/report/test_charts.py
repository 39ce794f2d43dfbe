"""Charts say what the numbers say: ticks are where they stand."""

import re
from itertools import pairwise
from pathlib import Path

from tpkd.report import charts
from tpkd.report.charts import BLUE, PALE, VARIABLES, draw, percent_axis


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


def test_a_page_can_replace_every_colour_of_a_chart():
    def paint(axes):
        axes.plot([0, 1], [0, 1], color=BLUE)
        axes.axhspan(0, 1, color=PALE)

    svg = draw("colours", "t", "d", paint).svg
    assert f"stroke: var(--chart-blue, {BLUE})" in svg
    assert f"fill: var(--chart-pale, {PALE})" in svg
    assert not re.search(r"(fill|stroke): #", svg)


def test_every_replaceable_colour_is_in_the_style_sheet_for_light_and_dark():
    sheet = (Path(charts.__file__).parent / "templates" / "page.css").read_text()
    light, dark = sheet.split("prefers-color-scheme: dark", 1)
    for name in set(VARIABLES.values()):
        assert f"--chart-{name}:" in light, name
        assert f"--chart-{name}:" in dark, name
