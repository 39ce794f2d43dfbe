"""The owner's charts have a mark for each number, and words for those who do not see them."""

import re
from dataclasses import replace

from compare.cases import cell, comparison
from compare.owner.cases import records_of
from tpkd.compare.owner.charts import class_chart, confidence_charts, emphasized, estimate_charts, progress_charts
from tpkd.compare.record import CellProgress, ReportRecords
from tpkd.compare.reporting import catalogue
from tpkd.report.charts import EMPHASIS

RECORDS = records_of({"ce": 1.0, "dkd": 3.0, "tpkd": 1.6}, teacher=2.2)


def test_estimates_have_dots_lines_and_bands():
    accuracy, difference = estimate_charts(RECORDS)
    assert "CE " in accuracy.description
    assert f"DKD {100 * RECORDS.assessment.find('dkd').accuracy.mean:.2f}" in accuracy.description
    assert accuracy.svg.count("opacity: 0.25") == 3  # bands
    assert difference.svg.count("opacity: 0.25") == 2
    assert "accuracy minus CE" in difference.svg
    bare = estimate_charts(records_of({"ce": 1.0, "kd": 1.2}, kept=False))
    assert [chart.svg.count("opacity: 0.25") for chart in bare] == [0, 0]
    assert estimate_charts(records_of({"ce": 1.0})) == []
    assert [chart.name for chart in estimate_charts(RECORDS, prefix="two-")] == ["two-accuracy", "two-minus-ce"]


def test_the_best_method_stands_out():
    assert emphasized("dkd").keys() == {*EMPHASIS, "dkd"}
    assert emphasized("tpkd") == EMPHASIS
    for chart in (*confidence_charts(RECORDS), class_chart(RECORDS)):
        assert re.findall(r">(DKD|CE|TPKD|Teacher)<", chart.svg) == ["DKD", "CE", "TPKD", "Teacher"], chart.name


def test_charts_of_answers_say_their_numbers():
    reliability, risk = confidence_charts(RECORDS)
    answers = RECORDS.assessment.find("dkd").answers
    assert f"DKD {100 * answers.calibration_error:.1f} %" in reliability.description
    assert f"DKD {answers.risk_coverage_area:.4f}" in risk.description
    assert "Teacher" in risk.description
    assert confidence_charts(records_of({"ce": 1.0}, kept=False)) == []
    assert class_chart(records_of({"ce": 1.0}, kept=False)) is None


def test_long_and_hostile_class_names_are_cut_and_escaped():
    evil = "<script>alert(1)</script>" * 9
    classes = (replace(RECORDS.assessment.classes[0], name=evil), *RECORDS.assessment.classes[1:])
    chart = class_chart(replace(RECORDS, assessment=replace(RECORDS.assessment, classes=classes)))
    assert "<script" not in chart.svg
    assert re.search(r">[^<]*…<", chart.svg)


def progress(*accuracies):
    losses = (2.0, 1.0, 0.5)
    return CellProgress((1, 2, 3), losses, tuple(range(1, len(accuracies) + 1)), accuracies)


def charts_of(*progresses):
    cells = [cell("ce", seed, 0.5, progress=found) for seed, found in enumerate(progresses)]
    return {chart.name: (chart, note) for chart, note in progress_charts(ReportRecords(catalogue(), comparison(cells)))}


def test_curves_of_loss_and_accuracy_are_means_over_seeds():
    found = charts_of(progress(0.2, 0.4, 0.6), progress(0.4, 0.6, 0.8))
    assert found.keys() == {"curve-accuracy", "curve-training-loss"}
    assert "At the end: CE 70.0 %." in found["curve-accuracy"][0].description
    assert "At the end: CE 0.500." in found["curve-training-loss"][0].description


def test_validation_has_a_curve_of_its_own():
    with_validation = replace(progress(0.4), validated_epochs=(1, 2), validation_accuracy=(0.25, 0.75))
    found = charts_of(with_validation)
    assert found.keys() == {"curve-validation", "curve-training-loss"}
    assert "At the end: CE 75.0 %." in found["curve-validation"][0].description


def test_an_accuracy_at_the_end_alone_is_no_curve():
    assert charts_of(progress(0.4)).keys() == {"curve-training-loss"}
    assert charts_of(None) == {}
