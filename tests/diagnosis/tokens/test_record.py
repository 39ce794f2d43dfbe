"""The record of a language model's diagnosis."""

from diagnosis.tokens.records import record
from tpkd.diagnosis.tokens.record import TokenDiagnosis


def test_it_comes_back_from_its_file():
    assert TokenDiagnosis.from_json(record().to_json()) == record()
