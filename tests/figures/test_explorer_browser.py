"""The explorer in a real browser: student and teacher are moved by pointer, finger, key, slider, preset and link."""

import math
from urllib.parse import urlsplit

import pytest

from browsing import SIZES, launched, needs_browser, opened
from tpkd.figures.cases import explorer_record
from tpkd.figures.interactive import write_explorer

pytestmark = needs_browser

CASES = {case.name: case for case in explorer_record().cases}


@pytest.fixture(scope="module")
def browser():
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return write_explorer(tmp_path_factory.mktemp("explorer")).as_uri()


@pytest.fixture
def page(browser, place):
    with opened(browser, place, "desktop") as page:
        yield page
        assert page.problems == []


def number(page, name):
    return float(page.locator(f'#numbers data[data-name="{name}"]').get_attribute("value"))


def column(page, sign):
    return [float(cell.get_attribute("value")) for cell in page.locator(f'#classes data[data-name^="{sign}."]').all()]


def centre(handle):
    box = handle.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(page, handle, right, down):
    x, y = centre(handle)
    page.mouse.move(x, y)
    page.mouse.down()
    for part in (0.25, 0.5, 0.75, 1):
        page.mouse.move(x + part * right, y + part * down)
    page.mouse.up()


def wait_for_address(page, part):
    page.wait_for_function("part => location.hash.includes(part)", arg=part)


def test_it_opens_with_figure_1_and_agrees_with_the_library(page):
    assert "all 8 examples are those of tpkd" in page.locator(".checked").inner_text()
    assert page.locator("#verdict").inner_text().startswith("Blocked.")
    assert page.locator("noscript").count() == 1


@pytest.mark.parametrize("name", CASES)
def test_a_preset_shows_the_numbers_of_the_record(page, name):
    case = CASES[name]
    page.get_by_role("button", name=case.title, exact=True).click()
    wait_for_address(page, name)
    shown = page.evaluate("[...document.querySelectorAll('#numbers data')].map(d => [d.dataset.name, d.value])")
    numbers = dict(shown)
    assert numbers.pop("blocked") == str(case.numbers["blocked"]).lower()
    assert float(numbers.pop("safe_imitation")) == pytest.approx(math.hypot(*case.numbers["safe_imitation"]), abs=1e-5)
    numbers.pop("retention_bound")
    assert len(numbers) > 8
    for key, value in numbers.items():  # a page holds probabilities to six digits
        assert float(value) == pytest.approx(case.numbers[key], abs=2e-5, rel=2e-3), key
    for sign, field in (("h", "label"), ("u", "conditional"), ("d", "safe"), ("v", "update")):
        assert column(page, sign) == pytest.approx(case.numbers[field], abs=1e-5)
    assert page.locator("#triangle").is_visible() == (len(case.labels) == 3)


@pytest.mark.parametrize("figure", ["triangle", "map"])
def test_the_student_is_dragged(page, figure):
    """Down in either picture is less confidence, until imitation is no longer blocked."""
    handle = page.locator(f"#{figure} .handle.student")
    before = number(page, "confidence")
    drag(page, handle, 0, 150)
    assert number(page, "confidence") < before - 0.3
    assert page.locator("#verdict").inner_text().startswith("Not blocked.")
    assert handle.get_attribute("aria-valuenow") == f"{100 * number(page, 'confidence'):.1f}"
    assert sum(column(page, "p")) == pytest.approx(1, abs=1e-5)
    wait_for_address(page, "p=")


def test_the_teacher_is_dragged_to_the_other_class(page):
    before = column(page, "q")
    drag(page, page.locator("#map .handle.teacher"), -150, 0)
    after = column(page, "q")
    assert after[1] < before[1] - 0.2
    assert number(page, "teacher_confidence") == pytest.approx(0.4, abs=0.01)


def test_a_finger_drags_too(browser, place):
    context = browser.new_context(viewport={"width": 375, "height": 812}, has_touch=True, is_mobile=True)
    page = context.new_page()
    page.goto(place)
    handle = page.locator("#triangle .handle.teacher")
    handle.scroll_into_view_if_needed()
    x, y = centre(handle)
    before = number(page, "teacher_confidence")
    session = context.new_cdp_session(page)
    for kind, down in (("touchStart", 0), ("touchMove", 20), ("touchMove", 40), ("touchEnd", None)):
        points = [] if down is None else [{"x": x, "y": y + down}]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    shown = "document.querySelector('#numbers data[data-name=teacher_confidence]').value"
    page.wait_for_function(f"least => Number({shown}) < least", arg=before - 0.1)
    context.close()


def test_arrow_keys_move_what_has_the_focus(page):
    handle = page.locator("#triangle .handle.student")
    handle.focus()
    confidence, relations = number(page, "confidence"), column(page, "r")
    page.keyboard.press("ArrowUp")
    assert number(page, "confidence") > confidence
    page.keyboard.press("Shift+ArrowDown")
    assert number(page, "confidence") < confidence
    page.keyboard.press("ArrowRight")
    assert column(page, "r")[1] == pytest.approx(relations[1] + 0.02, abs=1e-3)
    assert "confidence" in handle.get_attribute("aria-valuetext")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Student"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") != "Student"


def test_settings_change_what_they_name_and_nothing_else(page):
    before = {name: number(page, name) for name in ("transfer_cost", "compensation", "frontier_value")}
    page.locator("input[name=temperature]").fill("4")
    assert number(page, "transfer_cost") == before["transfer_cost"]
    assert number(page, "compensation") != before["compensation"]
    page.locator("input[name=budget]").fill("0.6")
    assert number(page, "frontier_value") < before["frontier_value"]
    step, label = column(page, "v"), column(page, "h")
    page.locator("input[name=beta]").fill("0")
    assert step != label
    assert column(page, "v") == label


def test_other_numbers_of_classes_and_two_correct_ones(page):
    for count in (6, 4, 3, 5):
        page.locator("select[name=count]").select_option(str(count))
        assert page.locator("#classes tbody tr").count() == count
        assert sum(column(page, "p")) == pytest.approx(1, abs=1e-5)
        assert page.locator("select[name=mixed]").is_disabled() == (count == 3)
    page.locator("select[name=mixed]").select_option("2")
    assert column(page, "s") == pytest.approx([0.7, 0, 0.3, 0, 0])
    assert "no margin ends lower than after the step of the mixed label" in page.locator("#verdict").inner_text()
    page.locator("input[name=teacher-4]").fill("0.5")
    assert column(page, "t")[4] == pytest.approx(0.5, abs=1e-3)


def test_a_link_brings_the_state_back(page, browser, place):
    page.get_by_role("button", name="Mixup", exact=True).click()
    page.locator("input[name=beta]").fill("1.25")
    wait_for_address(page, "beta=1.25")
    with opened(browser, page.url, "desktop", folder=place) as other:
        assert column(other, "v") == column(page, "v")
        assert number(other, "transfer_cost") == number(page, "transfer_cost")
        assert other.problems == []


@pytest.mark.parametrize(
    "address",
    [
        "#nonsense",
        "#p=1,2&t=3",
        "#p=0.5,0.3,x&t=0.2,0.5,0.3&y=1",
        "#p=.5,.3,.2&t=.2,.5,.3&y=9",
        "#%3Cimg%20src=x%3E",
        "#p=.5,.3,.2&t=.2,.5,.3&y=1:0.5,2:0.5",
    ],
)
def test_an_address_that_says_nothing_is_left_alone(browser, place, address):
    with opened(browser, f"{place}{address}", "desktop", folder=place) as page:
        assert number(page, "transfer_cost") == pytest.approx(CASES["figure-1"].numbers["transfer_cost"])
        assert page.problems == []


def test_probabilities_of_zero_in_a_link_are_lifted(browser, place):
    with opened(browser, f"{place}#p=1,0,0&t=0,1,0&y=1", "desktop", folder=place) as page:
        assert min(column(page, "p")) > 0
        assert math.isfinite(number(page, "imitation_loss"))
        assert page.problems == []


def test_the_corner_can_be_zoomed(page):
    handle = page.locator("#triangle .handle.student")
    before = centre(handle)
    page.locator(".zoom").click()
    assert centre(handle)[1] > before[1] + 50
    assert not page.locator("#triangle .handle.teacher").is_visible()
    drag(page, handle, 0, 30)
    assert 0.8 < number(page, "confidence") < 0.9


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_everything_is_seen_and_nothing_overflows(browser, place, size, scheme):
    for name in ("figure-1", "mixup"):
        with opened(browser, f"{place}#{name}", size, scheme=scheme, folder=place) as page:
            width = page.viewport_size["width"]
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            for figure in page.locator("figure:not([hidden])").all():
                box = figure.bounding_box()
                assert box["width"] > 250
                assert 0 <= box["x"] <= box["x"] + box["width"] <= width
            ground = page.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor")
            assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
            assert page.problems == []


def test_every_control_has_a_name(page):
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input, [role=slider]")].filter((element) =>
            ![element.getAttribute("aria-label"), element.textContent, element.closest("label")?.textContent]
                .some((text) => text?.trim())).length"""
    )
    assert unnamed == 0
    assert urlsplit(page.url).scheme == "file"
