"""Every study has one chart, whose description has the numbers of the record."""

import pytest

from mechanism.test_tables import KINDS, kept
from tpkd.mechanism.charts import mechanism_charts
from tpkd.report.numbers import milli, nats, share


@pytest.mark.parametrize("name", KINDS)
def test_the_description_says_the_numbers(name):
    record = kept(name)
    (chart,) = mechanism_charts([record], str.upper)
    if name == "blocking":
        expected = [share(state.blocked_share) for split in record.splits for state in split.states]
    elif name == "continuation":
        expected = [nats(curve.points[-1].conditional_loss) for curve in record.curves]
    else:
        gains = [[batch.gain for batch in state.batches] for state in record.states]
        expected = [milli(end) for values in gains for end in (min(values), max(values))]
    assert all(number in chart.description for number in expected)
    assert chart.svg.lstrip().startswith("<svg")
