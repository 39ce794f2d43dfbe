"""The record of a sweep."""

from compare.sweeps import BETA, record_of, trial
from tpkd.compare.sweep_record import SweepRecord, short_key


def test_it_reads_back():
    trials = [trial("tpkd", {BETA: beta}, {1: (0.5, 1.0), 2: None}) for beta in (0.5, 1)]
    record = record_of(trials, methods={"tpkd": {"optimizer.momentum": 0.5}})
    assert SweepRecord.from_json(record.to_json()) == record


def test_names_are_those_that_people_write():
    assert short_key("optimizer.learning_rate") == "rate"
    assert short_key(BETA) == "beta"
    assert trial("tpkd", {BETA: 0.5, "optimizer.learning_rate": 0.1}, {}).name == "tpkd beta=0.5 rate=0.1"
    assert trial("ce", {}, {}).name == "ce"


def test_selected_students_are_stamped():
    assert record_of([]).stamp == ""
    assert "selected by validation accuracy" in record_of([], selection="best-validation").stamp
