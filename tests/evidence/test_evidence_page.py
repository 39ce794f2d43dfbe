"""The pages show what results/ says: every table, figure and sentence is made again, byte for byte."""

import pytest
from tools.evidence.setting import RESULTS, ROOT
from tools.evidence_page import PAGE, PAGES, figures, part, render

FIGURES = ROOT / "docs" / "figures"
MOST_BYTES = 30_000_000


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_shows_the_records_as_they_are(path):
    page = path.read_text()
    assert "<!-- evidence: " in page
    assert page == render(page), "run `make evidence`"


def test_figures_are_those_of_the_records():
    made = figures()
    kept = {path.name: path.read_text() for path in FIGURES.glob("evidence-*.svg")}
    assert sorted(made) == sorted(kept), "run `make evidence`, and delete figures of settings that are gone"
    assert [name for name in made if made[name] != kept[name]] == []


def test_other_pages_say_what_the_first_screen_says():
    first, *others = (path.read_text() for path in PAGES)
    said = part("short answers").strip().splitlines()
    assert len(said) == 4
    for sentence in said:
        assert sentence in first[:12_000]
        assert all(sentence in page for page in others)


def test_the_first_screen_has_at_most_ten_answers():
    screen = PAGE.read_text().split("<!-- end -->")[0]
    answers = [line for line in screen.splitlines() if line.startswith("- **")]
    assert 4 <= len(answers) <= 10


def test_the_page_says_how_often_the_theory_was_broken():
    assert "**Does the theory hold?** 0 violations in " in PAGE.read_text()


def test_the_packed_scores_stay_small():
    assert sum(path.stat().st_size for path in RESULTS.glob("*/examples/*")) <= MOST_BYTES
