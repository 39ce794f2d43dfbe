"""A gallery of many examples: the page loads what is seen, however many there are; 100,000 with TPKD_FAULTS=full."""

import os

import numpy as np
import pytest

from audit.cases import make_case
from browsing import launched, needs_browser, opened, until
from tpkd.audit.collecting import CHUNK_ROWS

pytestmark = needs_browser

ROWS = 100_000 if os.environ.get("TPKD_FAULTS") == "full" else 4_000
SEEN = 80
"""Cards of one view at most, with those a line above and below it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    case = make_case(tmp_path_factory.mktemp("large"), rows=ROWS, students=1)
    case.audit(kind="image")
    return case.folder / "audit"


def test_a_view_loads_at_most_one_chunk_for_each_card(folder):
    with (
        launched() as browser,
        opened(browser, (folder / "index.html").as_uri(), "desktop", folder=folder.as_uri()) as page,
    ):
        until(page, "document.querySelector('.example img')")
        assert page.evaluate("document.querySelectorAll('.example').length") <= SEEN
        first = page.evaluate("tpkdAudit.loaded.inputs")
        assert first <= SEEN
        # However slow the machine, no more than what every stop on the way to the end shows.
        page.evaluate(
            """async () => {
            for (let part = 1; part <= 4; part += 1) {
                window.scrollTo(0, (document.body.scrollHeight * part) / 4);
                await new Promise(requestAnimationFrame);
            }
        }"""
        )
        until(page, f"[...document.querySelectorAll('.example')].some(card => card.dataset.order === '{ROWS - 1}')")
        until(page, "[...document.querySelectorAll('.example')].every(card => card.querySelector('img'))")
        assert page.evaluate("document.querySelectorAll('.example').length") <= SEEN
        loaded = page.evaluate("({...tpkdAudit.loaded})")
        assert loaded["inputs"] <= 5 * SEEN
        assert loaded["details"] == 0
        # From the last example straight to the middle: one file of details.
        page.goto(f"{(folder / 'index.html').as_uri()}#id={1000 + ROWS // 2}")
        page.wait_for_selector("#example[open]")
        assert page.evaluate("tpkdAudit.loaded.details") == 1
        assert page.problems == []


def test_every_example_is_in_one_chunk(folder):
    for name in ("inputs", "details-0"):
        chunks = len(list((folder / "data" / name).iterdir()))
        assert chunks == np.ceil(ROWS / CHUNK_ROWS)
