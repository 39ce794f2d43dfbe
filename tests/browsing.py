"""A real browser for the tests of pages: how it starts, at which sizes, and what it notes while a page is open."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]
SIZES = {"desktop": (1280, 900), "phone": (375, 812)}

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: `make browser` installs it")


@contextmanager
def launched() -> Iterator:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@contextmanager
def opened(browser, address, size, *, scheme="light", folder=None) -> Iterator:
    """The page at one of `SIZES`; `page.problems` collects what it says, throws, or asks of the network.

    `scheme` is "light" or "dark"; files below the address `folder` belong to the page.
    """
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    page.problems = []
    page.on("console", lambda message: page.problems.append(message.text))
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    own = (address, "data:") if folder is None else (address, "data:", folder)
    page.on("request", lambda request: request.url.startswith(own) or page.problems.append(request.url))
    page.goto(address)
    yield page
    context.close()


def until(page, expression, *, seconds=30) -> None:
    """Wait for an expression to hold. Playwright's own `wait_for_function` needs `eval`, which our pages forbid."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"never true: {expression}"
        page.wait_for_timeout(10)


def assert_figures_are_seen(page, count, *, height):
    """All figures are visible, no smaller than they can be read, and nothing overflows the window."""
    width = page.viewport_size["width"]
    figures = page.locator("figure svg").all()
    assert len(figures) == count
    for figure in figures:
        figure.scroll_into_view_if_needed()
        box = figure.bounding_box()
        assert figure.is_visible()
        assert box["width"] > 250
        assert box["height"] > height
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width
    assert page.evaluate("document.documentElement.scrollWidth") <= width
