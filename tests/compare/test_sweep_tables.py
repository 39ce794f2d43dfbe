"""The table of a sweep, and its best settings as configuration."""

import csv

import pytest

from compare.sweeps import BETA, RATE, TEMPERATURE, record_of, trial
from tpkd.compare.reporting import catalogue
from tpkd.compare.sweep_tables import methods_section, sweep_files, sweep_table

TITLE = catalogue().title


@pytest.fixture
def record():
    return record_of(
        [
            trial("ce", {}, {1: (0.5, 1.0), 2: (0.7, 1.0)}),
            trial("tpkd", {BETA: 0.5, RATE: 0.1}, {1: (0.5, 1.0), 2: (0.6, 0.8)}),
            trial("tpkd", {BETA: 1, RATE: 0.1}, {1: (0.7, 0.5), 2: (0.9, 0.25)}),
            trial("tpkd", {BETA: 2, RATE: 0.1}, {1: (0.95, 0.5), 2: None}),
        ]
    )


def test_every_combination_is_a_row_and_the_best_is_marked(record):
    files = sweep_files(record, TITLE)
    assert set(files) == {"tables/sweep.md", "tables/sweep.csv", "tables/sweep.tex"}
    rows = list(csv.DictReader(files["tables/sweep.csv"].splitlines()))
    assert [(row["method"], row["beta"], row["rate"]) for row in rows] == [
        ("CE", "", ""),
        *(("TPKD", beta, "0.1") for beta in ("0.5", "1", "2")),
    ]
    assert [row["best"] for row in rows] == ["", "", "yes", ""]
    assert [row["seeds"] for row in rows] == ["2 of 2", "2 of 2", "2 of 2", "1 of 2"]
    assert rows[2]["validation accuracy (%)"] == "80.00 ± 14.14"
    assert rows[2]["validation label loss (nats)"] == "0.375"
    assert rows[3]["validation accuracy (%)"] == "95.00"
    assert sweep_table(record, TITLE).emphasis == {2}


def test_it_says_why_there_is_no_test_split_and_what_is_not_compared(record):
    table = sweep_table(record, TITLE)
    assert "test split is not shown and was not evaluated" in table.caption
    assert "test" not in " ".join(column.title for column in table.columns)
    assert "On the same samples the student starts at 25.00 %, the teacher has 87.50 %." in table.notes
    assert "tpkd beta=2 rate=0.1: 1 seed missing (2), so it is not compared with the others." in table.notes
    stamped = sweep_table(record_of(record.trials, selection="best-validation"), TITLE)
    assert stamped.caption.endswith("Students were selected by validation accuracy, not taken after the last epoch.")


def test_the_best_settings_join_what_the_configuration_has(record):
    assert methods_section(record) == {"tpkd": {"objective.settings": {"beta": 1}, "optimizer.learning_rate": 0.1}}
    own = {"objective.settings": {"temperature": 4}, "objective.settings.beta": 7, "clip_norm": 1.0}
    joined = methods_section(record_of(record.trials, methods={"tpkd": own, "kd": {"clip_norm": 2.0}}))
    assert joined == {
        "tpkd": {"objective.settings": {"temperature": 4, "beta": 1}, "clip_norm": 1.0, "optimizer.learning_rate": 0.1}
    }
    assert methods_section(record_of([trial("kd", {TEMPERATURE: 1}, {1: (0.5, 1.0)})])) == {}
