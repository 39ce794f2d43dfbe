"""The tables of a comparison: the paper's layout, its numbers only where the protocol is its own, gaps marked."""

from dataclasses import replace

import pytest

from compare.cases import cell, comparison
from tpkd.compare.claims import claims_table
from tpkd.compare.page import comparison_page, report_tables
from tpkd.compare.reading import not_supported, supported
from tpkd.compare.record import PaperProtocol, ReportRecords
from tpkd.compare.reporting import catalogue
from tpkd.compare.tables import ablation_table, application_table, cost_table, seeds_table, selection_table
from tpkd.report.methods import Method
from tpkd.report.tables import text

METHODS = tuple(method for method in catalogue().methods if method.paper_accuracy or method.ablation)
"""Those of the paper, and the control that we added to its ablation."""
NAMES = tuple(method.name for method in METHODS)


def records(missing=(), paper=None, **fields):
    cells = [
        cell(name, seed, None if (name, seed) in missing else 0.8 + 0.01 * index + 0.001 * (seed - 42) ** 2)
        for index, name in enumerate(NAMES)
        for seed in (42, 43, 44)
    ]
    return ReportRecords(catalogue(), comparison(cells, paper=paper, **fields))


def plain_rows(table):
    return [[text(content) for content in row] for row in table.rows]


def test_application_has_the_papers_ten_rows():
    """tab:application: mean and sample standard deviation, and paired differences to KD and CE."""
    table = application_table(records())
    rows = plain_rows(table)
    assert [row[0] for row in rows] == ["CE", "KD", "KL-Dist", "DKD", "DP-U", "DP-S", "XE-KL", "DHKD", "DTO-KD", "TPKD"]
    # Accuracies 0.8, 0.801, 0.804: mean 0.80167, deviation 0.00208.
    assert rows[0] == ["CE", "80.17 ± 0.21", "-1.00 [-1.00, -1.00]", ""]
    assert rows[-1][2] == "+8.00 [+8.00, +8.00]"
    assert table.emphasis == {9}  # 89 %, the largest mean
    assert not any("paper" in column.title for column in table.columns)


def grid(accuracies, seeds=(42, 43)):
    """A grid in which every seed of an objective ends alike."""
    cells = [cell(name, seed, value) for name, value in accuracies.items() for seed in seeds]
    return ReportRecords(catalogue(), comparison(cells))


@pytest.mark.parametrize("make", [application_table, ablation_table])
def test_the_largest_mean_is_bold_whosever_it_is(make):
    def bold(accuracies, **more):
        table = make(grid({"tpkd": 0.7} | accuracies, **more))
        return {text(table.rows[index][0]) for index in table.emphasis}, " ".join(table.notes)

    first, notes = bold({"ce": 0.8})
    assert len(first) == 1
    assert not any("TPKD" in name for name in first)
    assert "In bold: the largest mean" in notes
    assert any("TPKD" in name for name in bold({"ce": 0.6})[0])
    assert len(bold({"ce": 0.7})[0]) == 0  # all alike: none is best
    assert bold({})[0] == set()


def test_means_over_other_seeds_have_no_largest():
    found = records(missing={("tpkd", 43)})
    assert application_table(found).emphasis == frozenset()
    assert not any("bold" in note for note in application_table(found).notes)


def test_one_seed_has_no_intervals_to_speak_of():
    names = {"ce": 0.6, "kd": 0.7, "tpkd": 0.8}
    one, two = (" ".join(not_supported(grid(names, seeds))) for seeds in ((42,), (42, 43)))
    assert "intervals" not in one
    assert "share one optimiser" in one
    assert "Each of the 6 intervals holds for itself" in two
    one, two = (claims_table(grid(names, seeds)).caption for seeds in ((42,), (42, 43)))
    assert "interval" not in one
    assert "with 95 % t-intervals, each for itself; verdicts on accuracy are corrected by Holm's method." in two
    one, two = (comparison_page(grid(names, seeds)) for seeds in ((42,), (42, 43)))
    assert "a line is the" not in one
    assert "a line is the 95 % interval of the mean" in two


def test_ablation_has_the_papers_rows_and_one_of_ours():
    """tab:ablation: conditions and directions as in the paper; compensation only is marked as ours."""
    rows = plain_rows(ablation_table(records()))
    assert [row[1] for row in rows] == ["h", "d/2", "h + Π(p − t)/2", "h + u/2", "h + ℓa₀/2", "h + d/2"]
    assert [row[0] for row in rows if "ours" in row[0]] == ["Compensation only (ours)"]
    main = {row[0]: row[1] for row in plain_rows(application_table(records()))}
    assert rows[0][2] == main["CE"]
    assert rows[-1][2] == main["TPKD"]


@pytest.mark.parametrize("domain", ["vision", "text"])
def test_the_papers_numbers_stand_beside_ours_only_under_its_protocol(domain):
    theirs = application_table(records(paper=PaperProtocol(domain, ())))
    assert theirs.columns[2].title.startswith("paper, ")
    assert {row[0]: row[2] for row in plain_rows(theirs)}["TPKD"] == {"vision": "88.05 ± 0.12", "text": "93.81 ± 0.27"}[
        domain
    ]
    ablation = ablation_table(records(paper=PaperProtocol(domain, ())))
    assert plain_rows(ablation)[1][3] == {"vision": "85.33 ± 0.05", "text": "91.60 ± 0.07"}[domain]
    near = application_table(records(paper=PaperProtocol(domain, ("epochs: expected 60, found 1",))))
    assert not any("paper" in column.title for column in near.columns)


def test_the_papers_differences_follow_from_its_numbers():
    """Section 6.2: +0.47 and +0.35 points over KD, +0.68 and +0.56 over CE (rounded from unrounded means)."""
    for domain, over_kd, over_ce in (("vision", 0.47, 0.68), ("text", 0.35, 0.56)):
        means = {method.name: method.paper_accuracy[domain][0] for method in METHODS if method.paper_accuracy}
        assert means["tpkd"] - means["kd"] == pytest.approx(over_kd, abs=0.015)
        assert means["tpkd"] - means["ce"] == pytest.approx(over_ce, abs=0.015)
        assert means.keys() == {method.name for method in METHODS} - {"compensation-only"}


def test_a_method_of_another_package_is_a_row_by_its_title_and_one_that_is_gone_by_its_name():
    cells = [cell(name, seed, 0.8) for name in ("kd", "mine", "gone", "tpkd-no-ce") for seed in (42, 43)]
    known = replace(catalogue(), methods=(*METHODS, Method("mine", "My method")))
    found = ReportRecords(known, comparison(cells))
    assert [row[0] for row in plain_rows(application_table(found))] == ["KD", "My method", "gone"]
    assert "My method" in [row[0] for row in plain_rows(seeds_table(found))]
    page = comparison_page(found)
    chart = page[page.index("<svg") : page.index("</svg>")]
    assert "My method" in chart
    assert "TPKD without CE gradient" in chart


def test_missing_and_failed_seeds_are_marked():
    gaps = {("tpkd", 43), ("dkd", 42), ("dkd", 43), ("dkd", 44)}
    found = records(missing=gaps)
    table = application_table(found)
    assert table.notes == ("DKD: n = 0, without seed 42, 43, 44.", "TPKD: n = 2, without seed 43.")
    rows = {row[0]: row[1:] for row in plain_rows(table)}
    assert rows["DKD"] == ["none", "", ""]
    cells = {row[0]: row[1:] for row in plain_rows(seeds_table(found))}
    assert cells["TPKD"][1] == "missing"
    assert cells["DKD"] == ["missing"] * 3
    failed = cell("ce", 42, None, status="failed", problem="disk full")
    assert seeds_table(ReportRecords(catalogue(), comparison([failed]))).notes == ("ce-42 failed: disk full",)
    assert "DKD" not in [row[0] for row in plain_rows(cost_table(found))]


def test_further_seeds_of_some_objectives_are_named_and_not_missed_in_the_others():
    cells = [cell(name, seed, 0.8) for name in ("ce", "kd", "dkd", "tpkd") for seed in (42, 43, 44)]
    found = ReportRecords(catalogue(), comparison([*cells, *(cell(name, 45, 0.9) for name in ("kd", "tpkd"))]))
    table = application_table(found)
    assert "over the seeds of each;" in table.caption
    assert table.notes == ("KD, TPKD: seeds 42, 43, 44, 45; CE, DKD: seeds 42, 43, 44.",)
    assert {row[0]: row[-1] for row in plain_rows(seeds_table(found))} == {
        "CE": "",
        "KD": "90.00",
        "DKD": "",
        "TPKD": "90.00",
    }
    assert "4 objectives with 3 to 4 seeds" in supported(found)[0]
    cautions = not_supported(found)
    assert not any("not complete" in sentence for sentence in cautions)
    assert any("Objectives have different seeds" in sentence for sentence in cautions)
    assert any("from CE by seed (over 42, 43, 44, which both have)" in sentence for sentence in supported(found))


def test_one_seed_has_no_deviation_and_no_interval():
    rows = plain_rows(
        application_table(ReportRecords(catalogue(), comparison([cell("kd", 42, 0.8), cell("tpkd", 42, 0.9)])))
    )
    assert rows == [["KD", "80.00", "", ""], ["TPKD", "90.00", "+10.00", ""]]


def test_selection_rates_by_epoch_and_seed():
    cells = [cell("dp-u", 42, 0.8, selection_rates=(1.0, 1.0)), cell("dp-s", 42, 0.8, selection_rates=(0.5,))]
    table = selection_table(ReportRecords(catalogue(), comparison([*cells, cell("ce", 42, 0.8)])))
    assert [column.title for column in table.columns] == ["epoch", "DP-U, seed 42", "DP-S, seed 42"]
    assert plain_rows(table) == [["1", "100.0 %", "50.0 %"], ["2", "100.0 %", ""]]
    assert selection_table(records()) is None


def test_the_same_cells_make_both_tables():
    """tab:ablation reads the cells of tab:application: nothing is trained twice."""
    found = records()
    paths = {
        part.path
        for table in (application_table(found), ablation_table(found))
        for row in table.rows
        for content in row
        if isinstance(content, tuple)
        for part in content
        if not isinstance(part, str)
    }
    methods = found.comparison.methods
    assert {path.split(".")[2] for path in paths} <= {str(index) for index in range(len(methods))}
    renamed = replace(found.comparison, methods=tuple(replace(m, mean=0.5) for m in methods))
    first, second = (
        plain_rows(make(ReportRecords(catalogue(), renamed)))[-1] for make in (application_table, ablation_table)
    )
    assert first[1].startswith("50.00")
    assert second[2].startswith("50.00")


def test_accuracy_on_the_validation_part_is_a_column_where_there_is_one():
    shown = {42: (0.5, 0.25), 43: (0.7, 0.75)}
    cells = [cell("ce", seed, tested, validation_accuracy=held) for seed, (tested, held) in shown.items()]
    table = application_table(ReportRecords(catalogue(), comparison(cells)))
    assert [column.title for column in table.columns][1:3] == ["accuracy (%)", "validation (%)"]
    assert plain_rows(table)[0][1:3] == ["60.00 ± 14.14", "50.00 ± 35.36"]
    assert "validation" not in "".join(column.title for column in application_table(records()).columns)


def test_tables_of_selected_students_are_stamped():
    cells = [cell("ce", 42, 0.5, selected_epoch=2), cell("tpkd", 42, 0.6, selected_epoch=3)]
    chosen = ReportRecords(catalogue(), comparison(cells, selection="best-validation"))
    tables = report_tables(chosen)
    stamp = "Students were selected by validation accuracy, not taken after the last epoch."
    assert {name for name, table in tables.items() if table and stamp in table.caption} == {
        *("claims", "application", "ablation", "seeds")
    }
    assert "after the last epoch: mean" not in tables["application"].caption
    assert tables["seeds"].notes == ("Epochs of the students, by seed: CE 2; TPKD 3.",)
    last = report_tables(ReportRecords(catalogue(), comparison(cells)))
    assert "after the last epoch: mean" in last["application"].caption
    assert not [name for name, table in last.items() if table and stamp in table.caption]
