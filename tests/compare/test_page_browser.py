"""The page of a comparison in a real browser: nothing fails, nothing is fetched, everything is seen, tables sort."""

import pytest

from browsing import SIZES, assert_figures_are_seen, launched, needs_browser, opened
from demo.small_demo import small_demo
from tpkd.compare.reporting import read_records
from tpkd.record import Record

pytestmark = needs_browser


@pytest.fixture(scope="module")
def browser():
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module", params=SIZES)
def page(request, browser):
    with opened(browser, small_demo().report.as_uri(), request.param) as page:
        yield page


def test_no_error_and_no_request(page):
    page.mouse.wheel(0, 30_000)
    page.wait_for_load_state("networkidle")
    assert page.problems == []


def test_every_figure_is_visible_and_nothing_overflows_the_window(page):
    assert_figures_are_seen(page, 14, height=90)


def test_numbers_equal_the_records(page):
    records = read_records(small_demo().report.parent)
    data = {name: value.to_dict() for name, value in vars(records).items() if isinstance(value, Record)}
    numbers = page.evaluate("[...document.querySelectorAll('data')].map(d => [d.dataset.path, d.value])")
    assert len(numbers) > 300
    for path, value in numbers:
        found = data
        for key in path.split("."):
            found = found[int(key)] if isinstance(found, list) else found[key]
        assert (None if value == "" else float(value)) == found, path


def test_tables_sort_by_the_first_number_of_a_cell(page):
    table = page.locator("table.sortable").first
    header = table.locator("thead th").nth(1)
    for direction in ("descending", "ascending"):
        header.locator("button").click()
        assert header.get_attribute("aria-sort") == direction
        values = table.evaluate("t => [...t.tBodies[0].rows].map(row => Number(row.cells[1].dataset.sort))")
        assert values == sorted(values, reverse=direction == "descending")


def test_the_page_is_complete_without_javascript(browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(small_demo().report.as_uri())
    assert page.locator("figure svg").count() == 14
    assert page.locator("thead button").count() == 0
    assert page.locator("tbody tr").count() > 100
    context.close()
