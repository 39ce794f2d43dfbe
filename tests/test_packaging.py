"""What is released: the source distribution, the wheel, their versions and their requirements."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from filelock import FileLock

ROOT = Path(__file__).resolve().parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
NOT_SHIPPED = (".ci/", ".gitignore", "results/")
"""For a clone only: continuous integration, and 13 MB of records."""


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The distribution, unpacked."""
    directory = tmp_path_factory.mktemp("sdist")
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(directory)]
    command += ["sdist", "--dist-dir", str(directory), "--formats", "tar"]
    # setuptools gathers the files in a folder of the checkout, which two test processes would share.
    with FileLock(tmp_path_factory.getbasetemp().parent / "sdist.lock"):
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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built without the code for newer processors, which takes longer to compile."""
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("no C compiler")
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(directory)]
    command += ["build", "--build-base", str(directory / "build")]
    command += ["bdist_wheel", "--dist-dir", str(directory), "--bdist-dir", str(directory / "files")]
    environment = {**os.environ, "TPKD_REQUIRE_KERNEL": "1", "TPKD_BASELINE_KERNEL": "1"}
    made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[-3000:]
    (path,) = directory.glob("*.whl")
    return path


def test_one_wheel_serves_every_python(wheel):
    assert "-cp311-abi3-" in wheel.name
    audit = subprocess.run([sys.executable, "-m", "abi3audit", "--strict", str(wheel)], capture_output=True, text=True)
    assert audit.returncode == 0, audit.stdout + audit.stderr


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {"tpkd", f"tpkd-{VERSION}.dist-info"}
    package = ROOT / "src" / "tpkd"
    expected = {path.relative_to(ROOT / "src").as_posix() for path in package.rglob("*") if path.is_file()}
    expected = {name for name in expected if not name.endswith((".c", ".h", ".pyc", ".so", ".pyd"))}
    found = {name for name in names if name.startswith("tpkd/")}
    assert found - expected == {"tpkd/objectives/kernels/_cpu.abi3.so", "tpkd/diagnosis/_rows.abi3.so"}
    assert expected - found == set()


def test_the_version_is_the_last_release_of_the_changelog():
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert "\n## [Unreleased]\n" in changelog
    (version, date), *_ = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)$", changelog, flags=re.M)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert version == citation["version"] == VERSION
    assert date == citation["date-released"].isoformat()


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
