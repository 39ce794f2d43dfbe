"""Rewrite what docs/evidence.md, README.md and others show of results/: `python -m tools.evidence_page`.

A comment names each part that is generated, and `<!-- end -->` closes it. Figures are files of docs/figures.
"""

import csv
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from tools.evidence.answers import Findings, full_answers, short_answers, state
from tools.evidence.charts import curves, forest
from tools.evidence.measures import judge
from tools.evidence.mechanism import blocking, continuations, count_theorems
from tools.evidence.setting import RESULTS, ROOT, Plan, read_settings
from tools.evidence.tables import (
    NOT_YET,
    claims_table,
    mechanism_table,
    metrics_table,
    overview_table,
    settings_table,
)
from tpkd.report.tables import to_markdown

PAGE = ROOT / "docs" / "evidence.md"
PAGES = (PAGE, ROOT / "README.md", ROOT / "docs" / "faq.md", ROOT / "docs" / "choosing.md")
_SHOWN = re.compile(r"<!-- (results/[\w./-]+\.md|claims of .+?|evidence: [\w ,-]+) -->\n.*?<!-- end -->", re.S)
_RUN = re.compile(r"(results/[\w-]+) as ([^;]+)")


def render(page: str, results: Path = RESULTS) -> str:
    """A page with the current tables and sentences of results/."""

    def fill(match: re.Match[str]) -> str:
        shown = match[1]
        if shown.startswith("results/"):
            made = (ROOT / shown).read_text()
        elif shown.startswith("evidence: "):
            made = part(shown.removeprefix("evidence: "), results)
        else:
            made = overview(dict(_RUN.findall(shown)))
        return f"<!-- {shown} -->\n\n{made}\n<!-- end -->"

    return _SHOWN.sub(fill, page)


def part(name: str, results: Path = RESULTS) -> str:
    """A generated part by its name: `answers`, `short answers`, `state`, `settings`, `overview`, `mechanism`, or the
    name of a setting."""
    plans, findings = read_findings(results)
    settings = {setting.plan.name: setting for setting in findings.settings}
    makers: dict[str, Callable[[], str]] = {
        "answers": lambda: full_answers(findings),
        "short answers": lambda: short_answers(findings),
        "state": lambda: state(findings),
        "settings": lambda: to_markdown(settings_table(plans, settings)),
        "overview": lambda: (
            to_markdown(overview_table(plans, settings, findings.judged)) if settings else f"{NOT_YET}\n"
        ),
        "mechanism": lambda: (
            to_markdown(mechanism_table(findings.settings, findings.continued)) if settings else f"{NOT_YET}\n"
        ),
    }
    return makers[name]() if name in makers else _setting(name, findings)


def _setting(name: str, findings: Findings) -> str:
    """Figures and tables of one setting."""
    setting = next((each for each in findings.settings if each.plan.name == name), None)
    if setting is None:
        return f"{NOT_YET}\n"
    images = [
        f"![{title}](figures/evidence-{kind}-{name}.svg)\n"
        for kind, title in (
            ("forest", "Accuracy minus CE and minus KD: thick over seeds, thin over seeds and test examples"),
            ("curves", "Blocked share, conditional KL and label loss by epoch, with 95 % bands over seeds"),
        )
    ]
    tables = [to_markdown(claims_table(setting, findings.judged[name])), to_markdown(metrics_table(setting))]
    return "\n".join(
        (f"{setting.progress[0].upper()}{setting.progress[1:]}.\n", tables[0], images[0], tables[1], images[1])
    )


def figures(results: Path = RESULTS) -> dict[str, str]:
    """File name in docs/figures -> SVG."""
    _, findings = read_findings(results)
    painters = {"forest": forest, "curves": curves}
    return {
        f"evidence-{kind}-{setting.plan.name}.svg": paint(setting)
        for setting in findings.settings
        for kind, paint in painters.items()
    }


@lru_cache(maxsize=4)
def read_findings(results: Path = RESULTS) -> tuple[tuple[Plan, ...], Findings]:
    """The settings that are planned, and all that was found."""
    claims, plans, settings = read_settings(results)
    judged = {}
    for family in {plan.family for plan in plans}:
        of_family = [setting for setting in settings if setting.plan.family == family]
        judged.update(judge(claims, [plan for plan in plans if plan.family == family], of_family))
    blocked = {setting.plan.name: found for setting in settings if (found := blocking(setting)) is not None}
    continued = {setting.plan.name: tuple(continuations(setting.directory)) for setting in settings}
    return plans, Findings(settings, judged, blocked, continued, count_theorems(results))


def overview(runs: dict[str, str]) -> str:
    """The first run: one row per claim and one column per run, with the verdict and the number behind it."""
    cells: dict[str, dict[str, str]] = {}
    for directory in runs:
        with (ROOT / directory / "tables" / "claims.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                number = row["here"].split(": ")[-1].replace(" %", "\u00a0%")
                interval = "" if row["interval"] == "none" else f" [{row['interval'].replace(' to ', ', ')}]"
                cells.setdefault(row["claim of the paper"], {})[directory] = f"{row['this run']}: {number}{interval}"
    lines = [["claim of the paper", *runs.values()], [":---"] * (len(runs) + 1)]
    lines += [[claim, *(found.get(directory, "not asked") for directory in runs)] for claim, found in cells.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(render(path.read_text()))
    for name, drawing in figures().items():
        (ROOT / "docs" / "figures" / name).write_text(drawing)
