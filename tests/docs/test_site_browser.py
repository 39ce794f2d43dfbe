"""The site in a real browser, opened from its folder: the start page and one page of each kind, wide and narrow."""

import pytest

from browsing import SIZES, launched, needs_browser
from docs.site import build_site

pytestmark = needs_browser

KINDS = {
    "start": "index",
    "guide with a real page": "blocked",
    "explorer": "explorer",
    "guide with commands": "cache",
    "host with its difference": "integrations/transformers",
    "theory with formulas": "theory/01-prediction",
    "objective": "objectives/tpkd",
    "questions": "faq",
    "reference": "reference/tpkd.geometry",
    "commands": "reference/commands",
    "index of the paper": "paper",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return build_site(tmp_path_factory)


@pytest.fixture(scope="module")
def browser():
    with launched() as browser:
        yield browser


@pytest.fixture(params=SIZES)
def page(request, browser, site):
    """A page at one size; `problems` collects what it says, throws, fails to find, or asks of anything but the site."""
    width, height = SIZES[request.param]
    context = browser.new_context(viewport={"width": width, "height": height})
    context.set_default_timeout(180_000)  # patience with a busy machine; nothing here is about speed
    page = context.new_page()
    page.problems = []
    home = site.as_uri()
    page.on("console", lambda message: page.problems.append(message.text))
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("requestfailed", lambda request: page.problems.append(f"failed: {request.url}"))
    page.on("request", lambda r: r.url.startswith((home, "data:", "about:")) or page.problems.append(r.url))
    yield page
    context.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_of_each_kind(page, site, kind):
    page.goto((site / f"{KINDS[kind]}.html").as_uri())
    page.mouse.wheel(0, 20_000)
    page.wait_for_load_state("networkidle")
    assert page.problems == []
    assert page.locator("h1").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


def test_formulas_have_a_size(page, site):
    page.goto((site / "theory/01-prediction.html").as_uri())
    boxes = page.evaluate("[...document.querySelectorAll('math')].map(m => m.getBoundingClientRect().height)")
    assert len(boxes) > 10
    assert min(boxes) > 5


def test_the_real_page_is_shown_inside(page, site):
    page.goto((site / "blocked.html").as_uri())
    frame = page.frame_locator("iframe.real-page")
    page.locator("iframe.real-page").scroll_into_view_if_needed()
    frame.locator("h1").first.wait_for()
    assert frame.locator("figure svg").count() > 3
    assert page.problems == []


def test_the_explorer_is_moved_inside_its_page(page, site):
    page.goto((site / "explorer.html").as_uri())
    page.locator("iframe.real-page").scroll_into_view_if_needed()
    frame = page.frame_locator("iframe.real-page")
    confidence = frame.locator("#numbers data[data-name=confidence]")
    before = float(confidence.get_attribute("value"))
    frame.locator("#map .handle.student").press("ArrowUp")
    assert float(confidence.get_attribute("value")) > before
    assert page.problems == []


def test_search_finds_a_word_without_a_server(page, site):
    page.goto((site / "index.html").as_uri())
    if page.viewport_size["width"] < 800:
        page.locator("label[for=__search]").first.click()
    page.locator("input.md-search__input").press_sequentially("frontier")
    page.locator(".md-search-result__item a").first.wait_for()
    found = page.locator(".md-search-result__item a").evaluate_all("links => links.map(link => link.href)")
    assert any("frontier" in link for link in found)
    assert page.problems == []
