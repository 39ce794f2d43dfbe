"""Charts say what the numbers say: ticks are where they stand."""

import re
from itertools import pairwise

from tpkd.report.charts import draw, percent_axis


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
