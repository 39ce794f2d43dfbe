"""A record of findings is JSON there and back, and its failures are those that failed."""

from check_loss.examination import examine
from tpkd.check_loss.record import FAIL, LossCheckRecord


def test_a_record_comes_back_whole():
    record = examine("faulty.overwrites")
    assert LossCheckRecord.from_json(record.to_json()) == record
    assert [found.name for found in record.failures] == [f.name for f in record.findings if f.outcome == FAIL] != []
