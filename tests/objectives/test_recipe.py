"""The recipe for an objective in CONTRIBUTING.md, followed literally: three files, and everything knows the method."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tpkd

ROOT = Path(__file__).resolve().parents[2]
SECTION = (ROOT / "CONTRIBUTING.md").read_text().split("## Add an objective\n")[1].split("\n## ")[0]
FILES = dict(re.findall(r"^\d\. `([^`]+)`(?:(?!^\d\. ).)*?^```python\n(.*?)^```", SECTION, re.M | re.S))

SCRIPT = """
from compare.cases import cell, comparison
from objectives.battery import CHECKS
from objectives.cases import CASES, Case
from tpkd.compare.page import report_files
from tpkd.compare.record import ReportRecords
from tpkd.compare.reporting import catalogue
from tpkd.objectives import names

assert "standardised-kd" in names()
assert Case("standardised-kd") in CASES
for check in CHECKS:
    check(Case("standardised-kd"))
cells = [cell(name, seed, 0.8) for name in ("ce", "standardised-kd") for seed in (42, 43)]
files = report_files(ReportRecords(catalogue(), comparison(cells)))
assert "Standardised KD" in files["tables/application.md"]
assert "Standardised KD" in files["report.html"].split("</svg>")[0]
print("followed")
"""


def run(command, here):
    environment = {"PYTHONPATH": f"{here / 'src'}:{ROOT / 'tests'}", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run([sys.executable, *command], cwd=here, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    here = tmp_path_factory.mktemp("checkout")
    shutil.copytree(Path(tpkd.__file__).parent, here / "src/tpkd", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in FILES.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(text)
    return here


def test_an_objective_takes_one_file_of_fifteen_lines():
    first, second = FILES
    assert (first, second) == (
        "src/tpkd/objectives/standardised_kd.py",
        "tests/objectives/test_standardised_kd.py",
    )
    lines = [line for line in FILES[first].splitlines() if line.strip() and '"""' not in line]
    assert len(lines) <= 15
    assert "docs/objectives/standardised-kd.md" in SECTION


def test_the_method_passes_the_battery_and_is_in_the_tables(followed):
    done = run(["-c", SCRIPT], followed)
    assert done.stdout == "followed\n", done.stderr


def test_the_method_is_listed_and_its_own_test_passes(followed):
    listed = run(["-m", "tpkd", "methods"], followed)
    assert "imitation of standardised logits" in listed.stdout, listed.stderr
    own = run(["-m", "pytest", "-q", "--import-mode=importlib", "tests"], followed)
    assert "1 passed" in own.stdout, own.stdout


def test_lints_and_types_accept_the_file(followed):
    name, settings = next(iter(FILES)), str(ROOT / "pyproject.toml")
    linted = run(["-m", "ruff", "check", "--config", settings, name], followed)
    assert linted.returncode == 0, linted.stdout
    typed = run(["-m", "mypy", "--config-file", settings, "--follow-imports", "silent", name], followed)
    assert typed.returncode == 0, typed.stdout
