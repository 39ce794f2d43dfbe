"""The owner's tables show what the records have, and leave out columns without data."""

import csv
import io
from dataclasses import replace

from compare.owner.cases import CLASSES, records_of, with_estimate
from tpkd.compare.owner.record import Latency, NetworkCost, NetworksRecord
from tpkd.compare.owner.tables import (
    classes_table,
    confidence_table,
    confusions_table,
    methods_table,
    networks_table,
    ranked_classes,
)
from tpkd.report.tables import text, to_csv

RECORDS = records_of({"ce": 1.0, "kd": 1.6, "tpkd": 3.0}, teacher=2.2, start=0.25)


def headings(table):
    return [column.title for column in table.columns]


def rows(table):
    return {text(row[0]): [text(cell) for cell in row[1:]] for row in table.rows}


def test_every_network_has_a_row_with_both_intervals():
    table = methods_table(RECORDS)
    both = ["over seeds", "over test samples"]
    assert headings(table) == ["method", "accuracy (%)", *both, "minus CE (points)", *both, "verdict"]
    found = rows(table)
    assert list(found) == ["Teacher", "Student before training", "CE", "KD", "TPKD"]
    best = RECORDS.assessment.find("tpkd")
    assert found["TPKD"][0] == f"{100 * best.accuracy.mean:.2f}"
    assert found["TPKD"][2] == f"[{100 * best.accuracy.sample_low:.2f}, {100 * best.accuracy.sample_high:.2f}]"
    assert (
        found["TPKD"][4] == f"[{100 * best.minus_reference.seed_low:+.2f}, {100 * best.minus_reference.seed_high:+.2f}]"
    )
    assert found["TPKD"][-1] == "above CE"
    assert found["CE"][3:] == ["", "", "", ""]
    assert found["Student before training"][0] == "25.00"
    assert table.emphasis == {4}


def test_the_wider_interval_gives_the_verdict():
    for fields, said in (
        ({"seed_low": -0.1, "seed_high": 0.3, "sample_low": 0.1, "sample_high": 0.2}, "undecided"),
        ({"seed_low": 0.1, "seed_high": 0.2, "sample_low": -0.1, "sample_high": 0.3}, "undecided"),
        ({"seed_low": -0.2, "seed_high": -0.1, "sample_low": -0.3, "sample_high": -0.05}, "below CE"),
    ):
        assert rows(methods_table(with_estimate(RECORDS, "kd", **fields)))["KD"][-1] == said


def test_columns_without_data_are_left_out():
    table = methods_table(records_of({"ce": 1.0, "kd": 1.6}, kept=False))
    assert headings(table) == ["method", "accuracy (%)", "over seeds", "minus CE (points)", "over seeds", "verdict"]
    assert any("answers were not kept" in note for note in table.notes)
    table = methods_table(records_of({"tpkd": 1.6}, seeds=(1,)))
    assert headings(table) == ["method", "accuracy (%)", "over test samples"]
    assert any("One seed per method" in note for note in table.notes)
    assert table.emphasis == frozenset()
    assert rows(methods_table(records_of({"ce": 1.0, "kd": 1.6}, seeds=(1,))))["KD"][-1] == "one seed"


def test_validation_has_a_column_where_there_is_one():
    record = RECORDS.comparison
    validated = replace(record.methods[1], validation_mean=0.625)
    methods = (record.methods[0], validated, record.methods[2])
    table = methods_table(replace(RECORDS, comparison=replace(record, methods=methods)))
    assert headings(table)[1:6] == [
        *("accuracy (%)", "over seeds", "over test samples"),
        *("validation (%)", "minus CE (points)"),
    ]
    assert [cells[3] for cells in rows(table).values()] == ["", "", "", "62.50", ""]


def test_without_an_assessment_there_are_no_tables():
    nothing = replace(RECORDS, assessment=None)
    for make in (methods_table, classes_table, confusions_table, confidence_table, networks_table):
        assert make(nothing) is None
    for make in (classes_table, confusions_table, confidence_table):
        assert make(records_of({"ce": 1.0}, kept=False)) is None


def test_scores_of_the_teacher_and_every_method():
    found = rows(confidence_table(RECORDS))
    assert list(found) == ["Teacher", "CE", "KD", "TPKD"]
    answers = RECORDS.assessment.find("kd").answers
    assert found["KD"] == [
        f"{answers.log_loss:.3f}",
        f"{answers.brier_score:.4f}",
        f"{100 * answers.calibration_error:.1f} %",
        f"{100 * answers.confidence_gap:+.2f}",
        f"{answers.risk_coverage_area:.4f}",
    ]


def test_classes_are_ordered_by_the_best_method_and_cut_for_the_page():
    table = classes_table(RECORDS)
    assert headings(table) == ["class", "test samples", "Teacher (%)", "CE (%)", "KD (%)", "TPKD (%)"]
    rates = [float(cells[-1]) for cells in rows(table).values()]
    assert rates == sorted(rates)
    assert set(rows(table)) == set(CLASSES)
    order = ranked_classes(RECORDS.assessment)
    cut = classes_table(RECORDS, most=3)
    assert list(rows(cut)) == [CLASSES[index] for index in order[:3]]
    assert cut.notes == ("The 3 weakest and the 0 strongest of 4 classes; `tables/classes.csv` has them all.",)
    assert classes_table(RECORDS, most=4).notes == ()


def test_a_class_without_test_samples_has_no_row():
    found = RECORDS.assessment
    gone = tuple(
        replace(method, answers=replace(method.answers, class_accuracy=(None, *method.answers.class_accuracy[1:])))
        for method in found.methods
    )
    records = replace(RECORDS, assessment=replace(found, methods=gone))
    assert set(rows(classes_table(records))) == set(CLASSES[1:])


def test_confusions_show_the_best_the_reference_and_the_teacher():
    table = confusions_table(RECORDS)
    assert headings(table) == ["label", "answer", "samples", "Teacher", "CE", "TPKD"]
    first = RECORDS.assessment.confusions[0]
    assert text(table.rows[0][0]) == CLASSES[first.label]
    assert text(table.rows[0][1]) == CLASSES[first.answer]
    assert text(table.rows[0][-1]) == f"{first.counts['tpkd']:.1f}"


def test_hostile_class_names_stay_in_their_cell():
    classes = tuple(replace(each, name=f'{each.name},"|\n') for each in RECORDS.assessment.classes)
    records = replace(RECORDS, assessment=replace(RECORDS.assessment, classes=classes))
    parsed = list(csv.reader(io.StringIO(to_csv(classes_table(records)))))
    assert {row[0] for row in parsed[1:]} == {each.name for each in classes}


def network(name, scale):
    return NetworkCost(
        name, "f", 1000 * scale, 4000 * scale, (Latency(1, 0.5 * scale, 5), Latency(64, 0.01 * scale, 5))
    )


def test_networks_have_sizes_and_times_with_the_machine_they_were_measured_on():
    found = NetworksRecord("cpu", 2, "fp32", network("builtin:mlp", 1), network("builtin:resnet20", 10))
    table = networks_table(replace(RECORDS, networks=found))
    assert rows(table) == {
        "Student": ["builtin:mlp", "1,000", "0.0040", "0.50", "0.010"],
        "Teacher": ["builtin:resnet20", "10,000", "0.040", "5", "0.10"],
    }
    assert "on cpu with 2 threads, fp32" in table.caption
    lone = NetworksRecord("cpu", 1, "fp32", replace(network("builtin:mlp", 1), latencies=()), None)
    assert headings(networks_table(replace(RECORDS, networks=lone))) == ["network", "model", "parameters", "megabytes"]
