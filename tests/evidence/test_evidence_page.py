from tools.evidence_page import PAGE, render


def test_the_page_shows_the_tables_as_they_are():
    page = PAGE.read_text()
    assert "<!-- results/" in page
    assert page == render(page), "run `make evidence`"
