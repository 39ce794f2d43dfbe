"""The pages of a comparison in a real browser: nothing fails, nothing is fetched, everything is seen, tables sort."""

import re
from pathlib import Path

import pytest

from browsing import SIZES, assert_figures_are_seen, launched, needs_browser, opened
from demo.small_demo import small_demo
from tpkd.compare.domains.reporting import write_domains
from tpkd.compare.page import comparison_page
from tpkd.compare.reporting import read_records
from tpkd.record import Record

pytestmark = needs_browser

RESULTS = Path(__file__).parents[2] / "results"
FIGURES = {"owner": 2 + 1 + 2 + 4 + 4 + 1 + 4, "paper": 1 + 2 + 3 + 4 + 4, "domains": 4}
"""Charts of each page."""


@pytest.fixture(scope="module")
def browser():
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The owner's page of the demo, the page around the paper, and that of two comparisons."""
    place, made = tmp_path_factory.mktemp("pages"), small_demo().report
    (place / "paper.html").write_text(comparison_page(read_records(made.parent)))
    write_domains([made.parent, RESULTS / "cpu-vision"], place / "both")
    return {"owner": made, "paper": place / "paper.html", "domains": place / "both" / "report.html"}


@pytest.fixture(scope="module", params=[(page, size) for page in FIGURES for size in SIZES], ids="-".join)
def shown(request, browser, places):
    """A page at a size, and its name."""
    name, size = request.param
    with opened(browser, places[name].as_uri(), size) as page:
        yield page, name


@pytest.fixture
def page(shown):
    return shown[0]


def test_no_error_and_no_request(page):
    page.mouse.wheel(0, 30_000)
    page.wait_for_load_state("networkidle")
    assert page.problems == []


def test_every_figure_is_visible_and_nothing_overflows_the_window(shown):
    page, name = shown
    assert_figures_are_seen(page, FIGURES[name], height=90)


def plain(records):
    return {name: value.to_dict() for name, value in vars(records).items() if isinstance(value, Record)}


def test_numbers_equal_the_records(shown):
    page, name = shown
    records = read_records(small_demo().report.parent)
    data = plain(records)
    if name == "domains":
        data = {"domains": [data, plain(read_records(RESULTS / "cpu-vision"))]}
    numbers = page.evaluate("[...document.querySelectorAll('data')].map(d => [d.dataset.path, d.value])")
    assert len(numbers) > 150
    for path, value in numbers:
        found = data
        for key in path.split("."):
            found = found[int(key)] if isinstance(found, list) else found[key]
        assert (None if value == "" else float(value)) == found, path


def test_tables_sort_by_the_first_number_of_a_cell(shown):
    page, name = shown
    column = 2 if name == "owner" else 1  # with cells of several numbers
    table = page.locator("table.sortable").first
    header = table.locator("thead th").nth(column)
    for direction in ("descending", "ascending"):
        header.locator("button").click()
        assert header.get_attribute("aria-sort") == direction
        rows = f"t => [...t.tBodies[0].rows].map(row => row.cells[{column}])"
        cells = table.evaluate(f"t => ({rows})(t).map(cell => [cell.dataset.sort ?? '', cell.textContent.trim()])")
        values = [float(key) for key, _ in cells if key]
        assert len(values) >= 5  # one per claim about accuracy
        assert values == sorted(values, reverse=direction == "descending")
        empty = [not text for _, text in cells]
        assert empty == sorted(empty)  # what has no value stays last


def test_a_dark_screen_gets_a_dark_page_with_readable_charts(browser, places):
    for name, place in places.items():
        context = browser.new_context(color_scheme="dark")
        page = context.new_page()
        page.goto(place.as_uri())
        colours = page.evaluate(
            """() => ({
                ground: getComputedStyle(document.querySelector("figure")).backgroundColor,
                words: getComputedStyle(document.querySelector("h2")).color,
                ticks: getComputedStyle(document.querySelector("figure svg text")).fill,
            })"""
        )
        light = {key: sum(map(int, re.findall(r"\d+", value)[:3])) for key, value in colours.items()}
        assert light["ground"] < 150, name
        assert min(light["words"], light["ticks"]) > 600, name
        page.emulate_media(media="print")
        printed = page.evaluate("getComputedStyle(document.querySelector('figure svg text')).fill")
        assert sum(map(int, re.findall(r"\d+", printed))) < 150, name
        context.close()


def test_a_page_is_complete_without_javascript(browser, places):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    for name, place in places.items():
        page.goto(place.as_uri())
        assert page.locator("figure svg").count() == FIGURES[name]
        assert page.locator("thead button").count() == 0
        assert page.locator("tbody tr").count() > 35
    context.close()
