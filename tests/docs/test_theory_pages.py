"""The plain pages: every statement of the paper has its page and its function there, every objective its section."""

import re
from importlib import import_module
from pathlib import Path

import pytest
from tools.paper_index import claims, read_labels

from tpkd.mechanism.paper import PAPER_STATES
from tpkd.objectives import describe

DOCS = Path(__file__).resolve().parents[2] / "docs"
CLAIMS = claims()
STATEMENTS = [label for label in read_labels() if not label.startswith(("tab:", "fig:"))]
THEORY = {path.name: path.read_text() for path in sorted((DOCS / "theory").glob("[0-9]*.md"))}
OBJECTIVES = {path.name: path.read_text() for path in sorted((DOCS / "objectives").glob("*.md"))}
PAGES = THEORY | {f"objectives/{name}": page for name, page in OBJECTIVES.items()}
LABEL = re.compile(r"\b(?:eq|thm|prop|cor):[a-z-]+")
LINKED_LABEL = re.compile(r"\[`((?:eq|thm|prop|cor):[a-z-]+)`\]\(\.\./\.\./PAPER\.md\)")
NAME = re.compile(r"`(tpkd(?:\.\w+)+)(?:\([^`]*\))?`")
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def resolve(name):
    """The object that a dotted name stands for."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            found = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)


def test_there_are_thirteen_pages_in_order():
    assert [name[:2] for name in THEORY] == [f"{number:02}" for number in range(1, 14)]
    for number, page in enumerate(THEORY.values(), 1):
        assert page.startswith(f"# {number}. ")


@pytest.mark.parametrize("name", THEORY)
def test_a_page_starts_with_its_question_and_ends_in_the_paper(name):
    title, question, *_ = THEORY[name].split("\n\n")
    assert question.startswith("> ")
    assert question.endswith("?")
    sections = HEADING.findall(THEORY[name])
    assert sections[:2] == ["An example", "The formula"]
    assert sections[-2:] == ["In practice", "In the paper"]
    index = (DOCS / "theory/index.md").read_text()
    assert f"[{title.removeprefix('# ')}]({name})" in index


@pytest.mark.parametrize("label", STATEMENTS)
def test_a_statement_stands_on_one_page_beside_its_function(label):
    homes = [name for name, page in PAGES.items() if label in LABEL.findall(page)]
    assert len(homes) == 1, f"{label} stands on {homes}, not on the one page that explains it"
    rows = [line for line in PAGES[homes[0]].splitlines() if label in LINKED_LABEL.findall(line)]
    assert len(rows) == 1, f"{label} is not linked to PAPER.md in a row of {homes[0]}"
    (claimed,) = CLAIMS[label]
    assert resolve(claimed) in [resolve(name) for name in NAME.findall(rows[0])]


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_names_exists(name):
    assert set(LABEL.findall(PAGES[name])) <= set(STATEMENTS)
    for dotted in NAME.findall(PAGES[name]):
        resolve(dotted)


@pytest.mark.parametrize("name", THEORY)
def test_the_function_of_a_statement_is_used_on_its_page(name):
    code = "\n".join(re.findall(r"```python\n(.*?)```", THEORY[name], flags=re.DOTALL))
    table = THEORY[name].split("## In the paper")[1]
    for dotted in NAME.findall(table):
        assert re.search(rf"\b{dotted.split('.')[-1]}\(", code), f"{dotted} is named and not shown"


def section(name):
    """The text about one objective: the page or the part of a page whose heading is its name."""
    for page in OBJECTIVES.values():
        found = re.search(rf"^(#+) `{name}`\n(.*?)(?=^\1 `|\Z)", page, flags=re.MULTILINE | re.DOTALL)
        if found:
            return found[2]
    raise AssertionError(f"docs/objectives/: expected a page or section headed '# `{name}`', found none")


@pytest.mark.parametrize("method", describe(), ids=lambda method: method.name)
def test_every_objective_has_a_section_with_its_settings(method):
    text = section(method.name)
    for part in ("Formula", "Source", "Needs", "Traps", "When to use it"):
        assert re.search(rf"^(#+ {part}|\*\*{part}\.\*\*)", text, flags=re.MULTILINE), f"{method.name} has no {part}"
    assert method.source in text, f"**Source.** of {method.name}: expected {method.source!r} as in its class"
    needs = re.search(r"^\*\*Needs\.\*\*(.*?)\n\n", text, flags=re.MULTILINE | re.DOTALL)[1]
    assert set(method.needs) <= set(re.findall(r"`(\w+)`", needs)), "**Needs.**: expected each need in backticks"
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", text, flags=re.MULTILINE))
    expected = {setting: str(value) for setting, value in method.defaults.items()}
    assert rows == expected, "expected a table with a row | `setting` | `default` | meaning | for each setting"


@pytest.mark.parametrize("method", describe(), ids=lambda method: method.name)
def test_every_objective_is_created_on_its_page_and_listed(method):
    assert f'create("{method.name}"' in section(method.name)
    assert re.search(
        rf"^\| \[`{method.name}`\]\(([\w-]+\.md)(#[\w-]+)?\) \|", OBJECTIVES["index.md"], flags=re.MULTILINE
    )


def test_quoted_accuracies_are_the_papers():
    for method in describe():
        row = re.search(rf"^\| \[`{method.name}`\].*$", OBJECTIVES["index.md"], flags=re.MULTILINE)
        assert row, f"docs/objectives/index.md: expected a row for {method.name}, found none"
        quoted = [tuple(map(float, cell)) for cell in re.findall(r"([\d.]+)\s±\s([\d.]+)", row[0])]
        assert quoted == list(method.paper_accuracy or ())
    known = {f"{mean:.2f}" for method in describe() for mean, _ in method.paper_accuracy or ()}
    for name, page in OBJECTIVES.items():
        assert set(re.findall(r"\b[89]\d\.\d\d\b", page)) <= known, name


def test_quoted_states_are_the_papers():
    for blocked, left, cost in PAPER_STATES.values():
        assert f"{blocked} %" in " ".join(THEORY["02-blocking.md"].split())
        assert left in THEORY["03-price.md"]
        assert cost in THEORY["03-price.md"]
