"""The index from the paper's labels to functions and tests, read off the sources; run to write PAPER.md."""

import ast
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LABEL = r"(?:eq|thm|prop|cor|tab|fig):[\w-]+"
CLAIM = re.compile(rf"Paper:\s+({LABEL}(?:,\s+{LABEL})*)")

HEADER = """# The paper, statement by statement

Written by `make paper` from the docstrings and the tests; a test keeps it true. The label is the paper's own.

| label | function | tests |
|---|---|---|
"""


@dataclass
class Entry:
    """What stands for one label."""

    later: bool
    functions: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)


def read_labels() -> dict[str, bool]:
    """Every label of the paper, and whether its function is still to come."""
    lines = (ROOT / "tests/paper/labels.txt").read_text().splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    return {row[0]: row[1:] == ["later"] for row in rows}


def claims() -> dict[str, list[str]]:
    """label -> the functions and classes whose docstring claims it."""
    found = defaultdict(list)
    for path in sorted((ROOT / "src/tpkd").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                continue
            for match in CLAIM.finditer(ast.get_docstring(node) or ""):
                for label in re.findall(LABEL, match.group(1)):
                    found[label].append(f"{module}.{node.name}")
    return found


def mentions() -> dict[str, list[str]]:
    """label -> the test functions that name it, in their docstring, decorators or body."""
    found = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        source = path.read_text()
        for node in ast.walk(ast.parse(source)):
            if not (isinstance(node, ast.FunctionDef) and node.name.startswith("test_")):
                continue
            text = "\n".join([ast.get_source_segment(source, part) or "" for part in [node, *node.decorator_list]])
            for label in sorted(set(re.findall(LABEL, text))):
                found[label].append(f"{path.relative_to(ROOT)}::{node.name}")
    return found


def index() -> dict[str, Entry]:
    """What the sources say about every label."""
    functions, tests = claims(), mentions()
    return {
        label: Entry(later, functions.get(label, []), tests.get(label, [])) for label, later in read_labels().items()
    }


def unknown_claims() -> set[str]:
    """Labels that a docstring claims and the paper does not have."""
    return set(claims()) - set(read_labels())


def render() -> str:
    """PAPER.md."""
    rows = []
    for label, entry in index().items():
        functions = "<br>".join(f"`{name}`" for name in entry.functions) or "with the experiments"
        tests = "<br>".join(f"`{name}`" for name in entry.tests[:3])
        rows.append(f"| `{label}` | {functions} | {tests} |\n")
    return HEADER + "".join(rows)


if __name__ == "__main__":
    (ROOT / "PAPER.md").write_text(render())
