"""mkdocs hooks for this site: pages from other sources, formulas, and the output of examples."""

import tempfile
from pathlib import Path
from typing import Any

from blocks import find_blocks, run_page
from formulas import render_formulas
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from reference import PACKAGES, commands_page, link_names, package_page, top_page
from sources import DOCS, PAGES, ROOT, expand, redirect_links

from tpkd.figures.cases import explorer_record
from tpkd.figures.page import explorer_page

SOURCES = {page: file for file, page in PAGES.items() if page != "index.md"}
EVIDENCE = "evidence.md"
printed: dict[str, list[str]] = {}
"""What each block of a page printed, for the pages whose examples are run when the site is built."""
PRINTED = "<!-- printed -->"
"""On a page: what the block above this line printed when the site was built."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Expand folders in the navigation, and leave out the evidence page if it does not exist yet."""
    config.nav = [entry for entry in _spelled_out(config.nav) if entry != {"Evidence": EVIDENCE} or _measured()]
    return config


def _measured() -> bool:
    return (DOCS / EVIDENCE).exists()


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
    """Add the pages that are written elsewhere: at the root of the repository, in docstrings, by commands."""
    pages = {page: (ROOT / file).read_text() for page, file in SOURCES.items()}
    pages |= {f"reference/{package}.md": package_page(package) for package in PACKAGES}
    pages |= {"reference/tpkd.md": top_page(), "reference/commands.md": commands_page()}
    with tempfile.TemporaryDirectory() as directory:
        for page in (DOCS / "blocked.md", DOCS / "check-loss.md", DOCS / "seeing.md"):
            printed[page.name] = [output for _, output in run_page(page, Path(directory))]
        pages["diagnosis.html"] = (Path(directory) / "page.html").read_text()
        gallery = [path for path in (Path(directory) / "gallery").rglob("*") if path.suffix in (".html", ".js")]
        pages |= {path.relative_to(directory).as_posix(): path.read_text() for path in gallery}
    pages["explorer-alone.html"] = explorer_page(explorer_record())
    for page, content in pages.items():
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Fill in what a page includes from elsewhere, and redirect its links."""
    address = page.file.src_uri
    source = SOURCES.get(address, f"docs/{address}")
    while PRINTED in markdown:
        above, _, below = markdown.rpartition(PRINTED)  # the last first: what is filled in is a block too
        output = printed[address][len(find_blocks(above)) - 1]
        markdown = f"{above}```text\n{output.strip()}\n```{below}"
    return link_names(expand(redirect_links(markdown, source, address), address))


def on_page_content(html: str, **_: Any) -> str:
    """Draw the formulas."""
    return render_formulas(html)
