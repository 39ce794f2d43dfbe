"""What mkdocs does for this site beyond its settings: pages from other sources, formulas, and one real run."""

import tempfile
from pathlib import Path
from typing import Any

from blocks import run_page
from formulas import render_formulas
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from reference import PACKAGES, commands_page, linked_index, package_page, top_page
from sources import DOCS, PAGES, ROOT, expand, redirect_links

SOURCES = {page: file for file, page in PAGES.items() if page != "index.md"}
REAL_RUN = "blocked.md"
"""The page whose examples are run when the site is built, to show what they print and write."""
real_output: list[str] = []


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Spell out the folders in the navigation."""
    config.nav = _spelled_out(config.nav)
    return config


def _spelled_out(entry: Any) -> Any:
    """An entry that names a folder becomes its pages, the index first."""
    if isinstance(entry, list):
        return [_spelled_out(item) for item in entry]
    if isinstance(entry, dict):
        return {title: _spelled_out(item) for title, item in entry.items()}
    if entry == "reference/":
        return ["reference/tpkd.md", "reference/commands.md", *(f"reference/{package}.md" for package in PACKAGES)]
    if entry.endswith("/"):
        pages = sorted((DOCS / entry).glob("*.md"), key=lambda page: (page.stem != "index", page.stem))
        return [page.relative_to(DOCS).as_posix() for page in pages]
    return entry


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are written elsewhere: at the root of the repository, in docstrings, by `tpkd diagnose`."""
    pages = {page: (ROOT / file).read_text() for page, file in SOURCES.items()}
    pages["paper.md"] = linked_index(pages["paper.md"])
    pages |= {f"reference/{package}.md": package_page(package) for package in PACKAGES}
    pages |= {"reference/tpkd.md": top_page(), "reference/commands.md": commands_page()}
    pages["diagnosis.html"] = _diagnosis()
    for page, content in pages.items():
        files.append(File.generated(config, page, content=content))
    return files


def _diagnosis() -> str:
    """Run the examples of blocked.md; returns the page that they write, and keeps what they print."""
    with tempfile.TemporaryDirectory() as directory:
        for block, printed in run_page(DOCS / REAL_RUN, Path(directory)):
            if block.language == "bash":
                real_output.append(printed)
        return (Path(directory) / "page.html").read_text()


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Fill in what a page takes from elsewhere, and lead its links right."""
    address = page.file.src_uri
    source = SOURCES.get(address, f"docs/{address}")
    if address == REAL_RUN:
        markdown = markdown.replace("<!-- printed -->", f"```text\n{real_output[-1].strip()}\n```")
    return expand(redirect_links(markdown, source, address), address)


def on_page_content(html: str, **_: Any) -> str:
    """Draw the formulas."""
    return render_formulas(html)
