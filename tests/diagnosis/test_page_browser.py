"""The page in a real browser: nothing fails, nothing is fetched, everything is seen, tables sort."""

import pytest

from browsing import SIZES, assert_figures_are_seen, launched, needs_browser, opened
from diagnosis.test_page import cut_record, record_of
from tpkd.diagnosis.page import diagnosis_page

pytestmark = needs_browser


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return record_of(tmp_path_factory.mktemp("browser"), students=3)


@pytest.fixture(scope="module")
def address(tmp_path_factory, record):
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(diagnosis_page(record))
    return path.as_uri()


@pytest.fixture(scope="module")
def browser():
    with launched() as browser:
        yield browser


@pytest.fixture(params=SIZES)
def page(request, browser, address):
    with opened(browser, address, request.param) as page:
        yield page


def test_no_error_and_no_request(page):
    page.mouse.wheel(0, 20_000)
    page.wait_for_load_state("networkidle")
    assert page.problems == []


def test_every_figure_is_visible_and_nothing_overflows_the_window(page):
    assert_figures_are_seen(page, 10, height=120)


def test_numbers_equal_the_record(page, record):
    data = record.to_dict()
    numbers = page.evaluate("[...document.querySelectorAll('data')].map(d => [d.dataset.path, d.value])")
    assert len(numbers) > 200
    for path, value in numbers:
        found = data
        for key in path.split("."):
            found = found[int(key)] if isinstance(found, list) else found[key]
        assert (None if value == "" else float(value)) == found, path


def column(table, index):
    cell = f"row.cells[{index}]"
    return table.evaluate(
        f"t => [...t.tBodies[0].rows].map(row => {cell}.querySelector('data')?.value ?? {cell}.textContent)"
    )


def test_tables_sort_both_ways(page):
    tables = page.locator("table.sortable").all()
    assert len(tables) == 4
    for table in tables:
        headers = table.locator("thead th").all()
        for index in (1, 2):
            before = column(table, index)
            numeric = table.locator("tbody td, tbody th").nth(index).locator("data").count() == 1
            first, second = ("descending", "ascending")
            if "text" in (headers[index].get_attribute("class") or ""):
                first, second = second, first
            for direction in (first, second):
                headers[index].locator("button").click()
                assert headers[index].get_attribute("aria-sort") == direction
                after = column(table, index)
                assert sorted(after) == sorted(before)
                if numeric:
                    assert after == sorted(after, key=float, reverse=direction == "descending")


def test_sorting_works_from_the_keyboard(page):
    header = page.locator("table.sortable thead th").nth(2)
    header.locator("button").focus()
    page.keyboard.press("Enter")
    assert header.get_attribute("aria-sort") == "descending"


def test_the_page_is_complete_without_javascript(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator("figure svg").count() == 10
    assert page.locator("thead button").count() == 0
    assert page.locator("table.sortable tbody tr").count() > 50
    context.close()


@pytest.fixture(scope="module")
def cut_address(tmp_path_factory):
    path = tmp_path_factory.mktemp("cut") / "page.html"
    path.write_text(diagnosis_page(cut_record(tmp_path_factory.mktemp("files"))))
    return path.as_uri()


@pytest.mark.parametrize("size", SIZES)
def test_marks_of_a_truncated_teacher_stand_beside_their_numbers(browser, cut_address, size):
    with opened(browser, cut_address, size) as page:
        assert page.problems == []
        assert_figures_are_seen(page, 10, height=120)
        notice = page.locator("p.notice")
        assert notice.count() == 1
        assert notice.is_visible()
        assert notice.bounding_box()["y"] < page.locator(".tile").first.bounding_box()["y"]
        right, *values = page.locator(".tile .value").all()
        assert right.inner_text().endswith("%")
        assert [value.inner_text()[0] for value in values] == ["≤", "≥", "≥", "≥"]
        for value in values:  # on one line, inside its tile
            assert value.bounding_box()["height"] < 50
            assert value.evaluate("e => e.scrollWidth <= e.clientWidth")


@pytest.mark.parametrize("size", SIZES)
def test_marked_columns_sort_by_number(browser, cut_address, size):
    with opened(browser, cut_address, size) as page:
        table = page.locator("table.sortable").nth(2)
        header = table.locator("thead th").nth(6)
        assert "transfer cost" in header.inner_text()
        for direction in ("descending", "ascending"):
            header.locator("button").click()
            assert header.get_attribute("aria-sort") == direction
            values = [float(value) for value in column(table, 6)]
            assert values == sorted(values, reverse=direction == "descending")
            assert len(set(values)) > 3
