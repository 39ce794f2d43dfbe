"""docs/evidence.md shows tables of results/: each between a comment with its path and a closing one."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "evidence.md"
_SHOWN = re.compile(r"<!-- (results/[\w./-]+\.md) -->\n.*?<!-- end -->", re.S)


def render(page: str) -> str:
    """The page with every table as it is in results/ now."""

    def fill(match: re.Match[str]) -> str:
        return f"<!-- {match[1]} -->\n\n{(ROOT / match[1]).read_text()}\n<!-- end -->"

    return _SHOWN.sub(fill, page)


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
