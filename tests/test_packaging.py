"""The source distribution: what is in it, and that its own tests say why they leave something out."""

import os
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOT_SHIPPED = (".ci/", ".gitignore", "results/")
"""For who has a clone: continuous integration, and 13 MB of records."""


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The distribution, unpacked."""
    directory = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(directory)]
    command += ["sdist", "--dist-dir", str(directory), "--formats", "tar"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[-3000:]
    (archive,) = directory.glob("*.tar")
    with tarfile.open(archive) as files:
        files.extractall(directory, filter="data")
    (unpacked,) = directory.glob("tpkd-*/")
    return unpacked


def test_the_sdist_has_every_file_but_the_records(sdist):
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode or not (ROOT / ".git").exists():
        pytest.skip("the list of files is git's, and this is not a clone")
    expected = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    expected = {name for name in expected if not name.startswith(NOT_SHIPPED)}
    found = {path.relative_to(sdist).as_posix() for path in sdist.rglob("*") if path.is_file()}
    assert sorted(expected - found) == []
    assert [name for name in found if name.endswith((".so", ".pyd", ".pyc")) or name.startswith(NOT_SHIPPED)] == []


def test_the_tests_of_the_evidence_say_why_they_are_skipped_in_the_sdist(sdist):
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "tests/evidence"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    found = subprocess.run(command, cwd=sdist, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout[-3000:]
    assert "results/ is not part of the source distribution" in found.stdout


def test_bounds_have_their_reason_beside_them():
    """Every requirement says in a comment why it is not older, but for tools that tests call in their simplest form."""
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    bare = {line.strip() for line in lines if line.startswith('  "') and ">=" in line and "#" not in line}
    assert bare == {
        '"hypothesis>=6.100",',
        '"pytest>=8.2",',
        '"pytest-xdist>=3.6",',
        '"ruff>=0.8",',
        '"types-PyYAML>=6",',
    }


@pytest.mark.parametrize(("name", "version"), [("jinja2", "3.1.6"), ("pillow", "12.1.1"), ("setuptools", "78.1.1")])
def test_releases_with_known_holes_are_not_taken(name, version):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    required = [each for group in (project["build-system"]["requires"], *extras) for each in group]
    assert {each for each in required if each.startswith(name)} == {f"{name}>={version}"}
