"""The sentences of a comparison are true to its records."""

from dataclasses import replace

import pytest

from compare.cases import cell, comparison
from demo.small_demo import small_demo
from tpkd.compare.reading import not_supported, supported
from tpkd.compare.record import ReportRecords
from tpkd.compare.reporting import catalogue, read_records


@pytest.fixture(scope="module")
def records():
    return read_records(small_demo().report.parent)


def reading(*pairs):
    """Sentences for TPKD and KD with these accuracies."""
    cells = [
        cell(name, seed, value)
        for seed, both in enumerate(pairs)
        for name, value in zip(("kd", "tpkd"), both, strict=True)
    ]
    return " ".join(supported(ReportRecords(catalogue(), comparison(cells))))


def test_the_reading_says_what_the_interval_says():
    assert "TPKD is above KD" in reading((0.80, 0.81), (0.82, 0.831), (0.81, 0.819))
    assert "TPKD is below KD" in reading((0.81, 0.80), (0.831, 0.82), (0.819, 0.81))
    assert "do not decide between the two" in reading((0.80, 0.83), (0.82, 0.81), (0.81, 0.82))
    assert "one seed alone does not say" in reading((0.80, 0.90))


def test_the_reading_names_identical_logits_and_why(records):
    text = " ".join(supported(records))
    assert "KL-Dist and DP-U end with elementwise identical test logits (seeds 42, 43)" in text
    assert "DP-U took the teacher's target for every sample of every epoch" in text
    assert "TPKD lost a margin of the CE step on 0 of" in text


def test_the_reading_says_what_the_data_do_not_support(records):
    text = " ".join(not_supported(records))
    assert "not the paper's protocol" in text
    assert "One data set and one pair of networks" in text
    assert "each of the 39 intervals holds for itself" in text.lower()
    paper = replace(records.comparison.paper, domain="text", differences=())
    theirs = replace(records, comparison=replace(records.comparison, paper=paper))
    assert "not the paper's protocol" not in " ".join(not_supported(theirs))


def test_a_seed_that_did_not_finish_makes_no_other_seeds():
    cautions = not_supported(ReportRecords(catalogue(), comparison([cell("ce", 43, 0.5), cell("tpkd", 43, None)])))
    assert any("not complete: tpkd-43 (missing)" in sentence for sentence in cautions)
    assert not any("different seeds" in sentence for sentence in cautions)


def test_parts_with_other_seeds_are_compared_by_the_seeds_that_both_have():
    cells = [cell(name, seed, 0.8) for name in ("tpkd", "tpkd-no-projection") for seed in (42, 43)]
    sentences = supported(ReportRecords(catalogue(), comparison([*cells, cell("tpkd", 44, 0.9)])))
    said = next(sentence for sentence in sentences if "parts alone" in sentence)
    assert (
        said == "By the seeds that both have, its parts alone end from TPKD, in points: TPKD without projection 0.00."
    )


def test_selected_students_are_said_to_be_selected():
    cells = [cell("ce", 42, 0.5), cell("tpkd", 42, 0.6)]
    chosen, last = (
        ReportRecords(catalogue(), comparison(cells, selection=selection)) for selection in ("best-validation", "last")
    )
    assert "the accuracy is that of the epoch with the best validation accuracy." in supported(chosen)[0]
    assert "the accuracy is that of the last epoch, fixed in advance." in supported(last)[0]
    assert not_supported(chosen)[0].startswith(
        "Students were selected by validation accuracy, not taken after the last"
    )
    assert not any("selected" in sentence for sentence in not_supported(last))
