from dataclasses import fields

from quality.cases import answers_of
from tpkd.quality.record import QualityRecord


def test_a_record_reads_back():
    record = answers_of(seed=1).quality
    again = QualityRecord.from_json(record.to_json())
    assert again == record
    assert all(getattr(again, field.name) == getattr(record, field.name) for field in fields(record))
