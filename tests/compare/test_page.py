"""The page of a comparison: self-contained, accessible, every number a record's, the reading true to the data."""

import re

import pytest

from compare.cases import cell, comparison
from demo.small_demo import small_demo
from diagnosis.test_page import Page
from tpkd.compare.page import comparison_page, report_files
from tpkd.compare.record import ReportRecords
from tpkd.compare.reporting import catalogue, read_records
from tpkd.report.numbers import FORMATS

EVIL = '<script>alert("x")</script>'


@pytest.fixture(scope="module")
def records():
    return read_records(small_demo().report.parent)


@pytest.fixture(scope="module")
def text(records):
    return comparison_page(records)


def test_tags_are_balanced_and_ids_unique(text):
    page = Page(text)
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)


def test_every_number_is_one_of_the_records(records, text):
    page = Page(text)
    data = {name: getattr(records, name).to_dict() for name in ("comparison", "assessment", *records.studies)}
    assert len(page.numbers) > 300
    assert {path.split(".")[0] for path, _, _ in page.numbers} == {"comparison", "assessment", *records.studies}
    for path, value, shown in page.numbers:
        found = data
        for key in path.split("."):
            found = found[int(key)] if isinstance(found, list) else found[key]
        assert value == ("" if found is None else repr(found)), path
        assert any(write(found) == shown for write in FORMATS.values()), path


def test_figures_and_tables_are_named(text):
    page = Page(text)
    charts = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(charts) == 1 + 2 + 3 + 4 + 4
    for attributes in charts:
        assert all(target in page.ids for target in attributes["aria-labelledby"].split())
    assert page.count("caption") == page.count("table") >= 13
    assert all("scope" in attributes for tag, attributes in page.tags if tag == "th")


def test_nothing_points_outside(text):
    for tag, attributes in Page(text).tags:
        for name in ("src", "href", "xlink:href", "action", "srcset", "data"):
            assert attributes.get(name, "#").startswith(("#", "data:,")), (tag, attributes)
    assert not re.search(r"url\((?!#)", text)
    assert "default-src 'none'" in text
    assert not re.search(r">\s*(nan|inf|None|undefined)\b", text)


def test_the_same_records_give_the_same_bytes(records):
    directory = small_demo().report.parent
    for name, content in report_files(records).items():
        assert (directory / name).read_text() == content


def test_names_are_escaped():
    evil = comparison([cell("ce", 42, 0.5), cell("kd", 42, None, status="failed", problem=EVIL)], name=EVIL)
    page = comparison_page(ReportRecords(catalogue(), evil))
    assert EVIL not in page
    assert Page(page).count("script") == 1


def test_a_grid_without_a_finished_cell_still_has_a_page():
    page = comparison_page(ReportRecords(catalogue(), comparison([cell("ce", 42, None), cell("tpkd", 42, None)])))
    assert Page(page).open == []
    assert "The grid is not complete: ce-42 (missing), tpkd-42 (missing)" in page
