"""Rewrite the tables of docs/evidence.md from results/: a comment names each table, `<!-- end -->` closes it."""

import csv
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "evidence.md"
_SHOWN = re.compile(r"<!-- (results/[\w./-]+\.md|claims of .+?) -->\n.*?<!-- end -->", re.S)
_RUN = re.compile(r"(results/[\w-]+) as ([^;]+)")


def render(page: str) -> str:
    """The page with the current tables of results/."""

    def fill(match: re.Match[str]) -> str:
        shown = match[1]
        table = (ROOT / shown).read_text() if shown.startswith("results/") else overview(dict(_RUN.findall(shown)))
        return f"<!-- {shown} -->\n\n{table}\n<!-- end -->"

    return _SHOWN.sub(fill, page)


def overview(runs: dict[str, str]) -> str:
    """One row per claim and one column per run: the verdict, and the number behind it."""
    cells: dict[str, dict[str, str]] = {}
    for directory in runs:
        with (ROOT / directory / "tables" / "claims.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                split = next((name for name in ("train", "test") if name in row["n"]), None)
                claim = row["claim of the paper"] + (f" ({split})" if split else "")
                number = row["here"].split(": ")[-1].replace(" %", "\u00a0%")
                interval = "" if row["interval"] == "none" else f" [{row['interval'].replace(' to ', ', ')}]"
                cells.setdefault(claim, {})[directory] = f"{row['this run']}: {number}{interval}"
    lines = [["claim of the paper", *runs.values()], [":---"] * (len(runs) + 1)]
    lines += [[claim, *(found.get(directory, "not asked") for directory in runs)] for claim, found in cells.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
