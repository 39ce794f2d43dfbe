"""Files for GitHub and pre-commit, which cannot run here: valid by their schemas and consistent with the Makefile."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").iterdir())
FORMS = GITHUB / "ISSUE_TEMPLATE"
SCHEMAS = {
    "vendor.github-workflows": WORKFLOWS,
    "vendor.github-issue-forms": sorted(set(FORMS.iterdir()) - {FORMS / "config.yml"}),
    "vendor.github-issue-config": [FORMS / "config.yml"],
    "vendor.citation-file-format": [ROOT / "CITATION.cff"],
}


def validate(schema, paths):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_are_valid_by_their_schema(schema):
    assert SCHEMAS[schema]
    found = validate(schema, SCHEMAS[schema])
    assert found.returncode == 0, found.stdout


def test_a_workflow_with_a_mistake_is_noticed(tmp_path):
    text = (GITHUB / "workflows" / "ci.yml").read_text()
    mistakes = [("runs-on:", "run-on:"), ("- run: make check", "- rum: make check"), ("branches:", "branch:")]
    paths = [tmp_path / f"{number}.yml" for number in range(len(mistakes))]
    for path, mistake in zip(paths, mistakes, strict=True):
        path.write_text(text.replace(*mistake, 1))
    found = validate("vendor.github-workflows", paths)
    assert found.returncode == 1
    assert all(f"{path}::" in found.stdout for path in paths)


def commands(path):
    jobs = yaml.safe_load(path.read_text())["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


def test_the_workflow_calls_make_check_and_make_test():
    assert {"make check", "make test"} <= set(commands(GITHUB / "workflows" / "ci.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_targets_that_exist(path):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M)
    called = [command.removeprefix("make ") for command in commands(path) if command.startswith("make ")]
    assert set(called) <= set(targets)


def test_pre_commit_reads_its_hooks():
    command = [sys.executable, "-m", "pre_commit", "validate-config", ".pre-commit-config.yaml"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_hooks_are_the_checks_of_make_check():
    """They call `.venv`, where the versions are those of constraints.txt: no second pin to keep up."""
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    recipe = (ROOT / "Makefile").read_text().partition("\ncheck:")[2].partition("\n\n")[0]
    checks = re.findall(r"^\t\$\(BIN\)/(.*)$", recipe, flags=re.M)
    checks = [check.replace(" --check", "").removesuffix(" .") for check in checks]
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == [f".venv/bin/{check}" for check in checks]
