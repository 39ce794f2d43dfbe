"""The page of several comparisons: whole, escaped, and the same for the same records."""

from compare.domains.cases import two_domains
from diagnosis.test_page import Page
from tpkd.compare.domains.page import domains_files, domains_page

EVIL = '<script>alert("x")</script>'
SKILLS = {"ce": 1.0, "kd": 1.5, "safe-full-kl": 1.0, "tpkd": 3.0}


def test_tags_are_balanced_ids_unique_and_tables_named():
    page = Page(domains_page(two_domains(SKILLS, SKILLS, teacher=2.0)))
    assert page.open == []
    assert len(set(page.ids)) == len(page.ids)
    assert page.count("svg") == 4
    assert page.count("caption") == page.count("table") == 5


def test_names_are_escaped():
    page = domains_page(two_domains(SKILLS, SKILLS, names=(EVIL, f"{EVIL}2")))
    assert EVIL not in page
    assert Page(page).count("script") == 1


def test_files_are_the_page_and_every_table():
    records = two_domains(SKILLS, SKILLS)
    files = domains_files(records)
    assert files == domains_files(records)
    names = ("claims", "controls", "differences", "domains", "facts")
    assert set(files) == {"report.html", *(f"tables/{name}.{kind}" for name in names for kind in ("csv", "md", "tex"))}
