"""The script of interactive pages in a real browser: its formats are Python's, and texts stay texts."""

import numpy as np
import pytest

from browsing import launched, needs_browser, opened, until
from tpkd.report import numbers
from tpkd.report.html import page_template

pytestmark = needs_browser

PAGE = """
{% extends "interactive.html" %}
{% block title %}toolkit{% endblock %}
{% block body %}<main id="reading"></main>{{ json_element("given", given) }}{% endblock %}
"""
HOSTILE = "</script><img src=x onerror=\"console.log('ran')\">\u2028\u202e"
KINDS = {"nats": numbers.nats, "share": numbers.share, "probability": numbers.probability, "count": numbers.count}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("toolkit") / "page.html"
    template = page_template("interactive.html").environment.from_string(PAGE)
    path.write_text(template.render(given={"name": HOSTILE}))
    with launched() as browser, opened(browser, path.as_uri(), "desktop") as page:
        yield page


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_written_as_python_writes_them(page, kind):
    random = np.random.default_rng(0)
    values = [
        0.0,
        1.0,
        0.0004999,
        0.0005,
        0.9995,
        0.99949,
        2e6,
        1.5e12,
        *random.random(200),
        *(random.random(100) * 1e5),
    ]
    values = [int(value) for value in values] if kind == "count" else [float(value) for value in values]
    written = page.evaluate(f"values => values.map(tpkd.numbers.{kind})", [*values, None])
    assert written == [KINDS[kind](value) for value in [*values, None]]


def test_signed_numbers_are_written_as_python_writes_them(page):
    values = [float(value) for value in np.random.default_rng(1).normal(size=100)]
    written = page.evaluate("values => values.map(tpkd.numbers.signedNats)", values)
    assert written == [numbers.signed_nats(value) for value in values]


def test_texts_stay_texts(page):
    assert page.evaluate("tpkd.data('given').name") == HOSTILE
    page.evaluate(
        """() => {
        const {name} = tpkd.data("given");
        const lines = [{name, points: [[0, 1], [1, 0.5], [2, null], [3, 0.1]]}];
        const named = {title: name, description: name, x: {name}, y: {name}};
        const chart = tpkd.lineChart({...named, lines, marks: [{x: 1, y: 0.5, name}]});
        document.querySelector("main").append(tpkd.html("p", {title: name}, name), tpkd.legend(lines), chart);
    }"""
    )
    assert page.locator("img").count() == 0
    assert page.locator("main p").inner_text() == HOSTILE
    assert page.locator("svg.chart").get_attribute("role") == "img"
    assert page.locator("svg.chart .line").get_attribute("d").count("M") == 2
    assert page.problems == []


def test_what_a_text_smuggles_in_does_not_run(page):
    """Even where a page would take a text for markup, its policy runs no handler."""
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = 1\">')")
    until(page, "document.querySelector('body > img').complete")
    assert page.evaluate("window.ran") is None
    page.problems.clear()


def test_columns_are_unpacked(page):
    assert page.evaluate("[...tpkd.unpack('AACAPwAAAEA=', Float32Array)]") == [1.0, 2.0]


def test_ticks_are_round(page):
    assert page.evaluate("tpkd.ticks(0, 0.33)") == [0, 0.1, 0.2, 0.3]
    assert page.evaluate("tpkd.ticks(-1, 7)") == [0, 2, 4, 6]
    assert page.evaluate("tpkd.ticks(3, 3)") == [3]
