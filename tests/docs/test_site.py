"""The site builds without a warning, every link resolves, formulas are drawn, and nothing is loaded from elsewhere."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from docs.hooks.reference import PACKAGES, public_names

from docs.site import ROOT, Links, build_site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return build_site(tmp_path_factory)


@pytest.fixture(scope="module")
def pages(site):
    return {page: Links(page) for page in sorted(site.rglob("*.html"))}


def test_every_link_and_every_anchor_arrives(site, pages):
    assert len(pages) > 40
    checked = 0
    for page, links in pages.items():
        for target in links.targets:
            address = urlsplit(target)
            if address.scheme or page.name == "404.html":  # served from anywhere, it leads by absolute paths
                continue
            found = (page.parent / unquote(address.path)).resolve() if address.path else page
            assert found.is_file() or found == site, f"{page.relative_to(site)} leads to {target}"
            if found in pages:
                assert unquote(address.fragment) in pages[found].anchors, f"{page.relative_to(site)} leads to {target}"
            checked += 1
    assert checked > 2000


def test_links_into_the_repository_name_files_that_exist(pages):
    blob = "https://github.com/tpkd/tpkd/blob/main/"
    for links in pages.values():
        for target in links.targets:
            if target.startswith(blob):
                assert (ROOT / target.removeprefix(blob).partition("#")[0]).exists(), target


def test_nothing_is_loaded_from_elsewhere(site, pages):
    for page, links in pages.items():
        for source in links.loaded:
            if page.name != "404.html" and not source.startswith("data:"):
                assert not urlsplit(source).scheme, f"{page} loads {source}"
                assert not urlsplit(source).netloc
                assert (page.parent / urlsplit(source).path).resolve().is_file(), f"{page} loads {source}"


def test_every_formula_is_drawn(site):
    drawn = 0
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not re.search(r'class="arithmatex">(?!<math)', text), page
        assert "<merror" not in text
        # In prose, a dollar that opens no formula would be shown as a dollar.
        prose = re.sub(r"<(pre|code|script|style|annotation)\b.*?</\1>", "", text, flags=re.DOTALL)
        if page.name != "diagnosis.html":
            assert not re.search(r"\$[^$\n<]+\$", prose), page
        drawn += text.count("<math")
    assert drawn > 100


def test_no_path_of_the_machine_that_built_it(site):
    for file in site.rglob("*"):
        if file.suffix in {".html", ".js", ".json", ".xml", ".txt", ".css"}:
            text = file.read_text()
            assert str(ROOT) not in text, file
            assert str(Path.home()) + "/" not in text, file
            assert not re.search(r"/tmp/\w|site-packages", text), file


def test_the_reference_describes_every_public_name(site):
    for package in PACKAGES:
        text = (site / "reference" / f"{package}.html").read_text()
        for name in public_names(package):
            assert f'id="{package}.{name}"' in text, f"{package}.{name}"


def test_names_on_the_pages_lead_to_the_reference(site):
    text = (site / "theory" / "index.html").read_text()
    assert 'href="../reference/tpkd.theory.html#tpkd.theory.diagnose"' in text


def test_doctests_stand_as_code_and_not_as_quotations(site):
    for page in (site / "reference").glob("*.html"):
        text = page.read_text()
        assert "&gt;&gt;&gt;" in text or ">>>" not in text
        assert "<blockquote>" not in text, page


def test_each_host_shows_its_difference(site):
    for host in ("transformers", "language-models", "timm", "lightning"):
        text = (site / "integrations" / f"{host}.html").read_text()
        (count,) = re.findall(r"examples/distill_\w+\.py: (\d+) lines changed or added", text)
        assert 0 < int(count) <= 5


def test_the_start_page_is_the_readme(site):
    """It includes sections of the README: one source, nothing copied by hand."""
    text = re.sub(r"<[^>]+>", "", (site / "index.html").read_text())
    words = " ".join(text.split())
    for sentence in (
        "copying means un-learning",
        "defaults beta=0.5 and temperature=1.0 are the paper",
        "No theorem promises accuracy",
    ):
        assert sentence in words


def test_the_page_of_the_diagnosis_is_what_its_examples_write(site):
    text = (site / "diagnosis.html").read_text()
    assert all(f"epoch-{epoch}.npy" in text for epoch in (10, 20, 40))
    assert 'src="diagnosis.html"' in (site / "blocked.html").read_text()
    assert "blocked" in (site / "blocked.html").read_text()
