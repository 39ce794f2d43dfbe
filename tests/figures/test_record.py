"""The numbers of the figures are JSON there and back."""

from tpkd.figures.illustrations import feasibility_illustration, geometry_illustration
from tpkd.figures.record import IllustrationsRecord


def test_a_record_comes_back_whole():
    record = IllustrationsRecord(feasibility_illustration(), geometry_illustration())
    assert IllustrationsRecord.from_json(record.to_json()) == record
