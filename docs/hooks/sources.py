"""What pages take from elsewhere: sections of the README, scripts and their differences, and links that leave docs/."""

import difflib
import logging
import os
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
REPOSITORY = "https://github.com/tpkd/tpkd/blob/main"
PAGES = {
    "README.md": "index.md",
    "PAPER.md": "paper.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""Files at the root of the repository, and the pages of the site that show them."""
DIRECTIVE = re.compile(r"^<!-- (?P<verb>include|script|diff) (?P<what>.+?) -->$", re.M)
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)(?P<path>[^)\s#]+)(?P<anchor>#[^)\s]*)?(?=\))")
log = logging.getLogger("mkdocs.hooks")
CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`)", re.M | re.S)


def expand(markdown: str, page: str) -> str:
    """Replace each directive, a comment on a line of its own, by what it names.

    `include FILE: HEADING` gives the text below that heading, `script FILE` a whole script, and `diff BEFORE AFTER`
    what changes between two scripts. A file that is not there is a warning, which fails a strict build.
    """

    def replace(directive: re.Match[str]) -> str:
        what = directive["what"]
        missing = [file for file in what.split(": ")[0].split() if not (ROOT / file).is_file()]
        if missing:
            log.warning("%s shows %s, which does not exist", page, " and ".join(missing))
            return ""
        if directive["verb"] == "include":
            file, heading = what.split(": ", 1)
            return redirect_links(section((ROOT / file).read_text(), heading), file, page)
        if directive["verb"] == "script":
            return f'```python title="{what}"\n{(ROOT / what).read_text()}```'
        return difference(*what.split())

    return DIRECTIVE.sub(replace, markdown)


def section(markdown: str, heading: str) -> str:
    """The text between a heading and the next one; a heading that is not there is an error.

    Example:
        >>> section("# A\\none\\n## B\\ntwo\\n## C\\nthree", "B")
        'two'
    """
    # A comment in a shell block begins like a heading: blank the code out, keeping every position.
    text = CODE.sub(lambda code: "." * len(code[0]), markdown)
    start = re.search(rf"^#+ {re.escape(heading)}$", text, re.M)
    if start is None:
        raise ValueError(f"no heading {heading!r}")
    end = re.search(r"^#+ ", text[start.end() :], re.M)
    return markdown[start.end() : start.end() + end.start() if end else None].strip()


def difference(before: str, after: str) -> str:
    """Two scripts as a diff, under a title that counts the lines of the second that are not in the first."""
    old, new = ((ROOT / file).read_text().splitlines() for file in (before, after))
    lines = list(difflib.unified_diff(old, new, lineterm="", n=2))[2:]  # without the names of the files
    count = sum(line.startswith("+") for line in lines)
    shown = "\n".join("…" if line.startswith("@@") else line for line in lines[1:])
    return f'```diff title="{before} → {after}: {count} lines changed or added"\n{shown}\n```'


def redirect_links(markdown: str, source: str, page: str) -> str:
    """Redirect the links of a file for the site: to its page if there is one, otherwise to the repository.

    Args:
        markdown: text written for `source`.
        source: file that holds the text, from the root of the repository.
        page: page of the site that shows it, from docs/.

    Example:
        >>> redirect_links("[index](../PAPER.md) [code](../Makefile)", "docs/faq.md", "faq.md")
        '[index](paper.md) [code](https://github.com/tpkd/tpkd/blob/main/Makefile)'
    """

    def replace(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(ROOT / Path(source).parent / link["path"]))
        if not target.exists() or not target.is_relative_to(ROOT):
            return link[0]  # mkdocs knows generated pages, and names what is missing
        name = target.relative_to(ROOT).as_posix()
        if target.is_relative_to(DOCS):
            found = target.relative_to(DOCS).as_posix()
        elif name in PAGES:
            found = PAGES[name]
        else:
            return f"{REPOSITORY}/{name}"
        return os.path.relpath(found, Path(page).parent) + (link["anchor"] or "")

    pieces = CODE.split(markdown)  # every second piece is code
    return "".join(piece if index % 2 else LINK.sub(replace, piece) for index, piece in enumerate(pieces))
