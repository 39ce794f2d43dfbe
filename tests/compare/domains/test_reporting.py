"""Where a common report goes, and what it never overwrites."""

import shutil
from pathlib import Path

import pytest

from tpkd.compare.domains.reporting import check_place, common_place, read_domains, write_domains
from tpkd.errors import InputError

RESULTS = Path(__file__).parents[3] / "results"
BOTH = [RESULTS / "growth-vision", RESULTS / "cpu-text"]


def test_domains_are_named_by_their_data_or_what_tells_them_apart(tmp_path):
    assert read_domains(BOTH).names == ("CIFAR-100", "CLINC150")
    two = read_domains([RESULTS / "growth-vision", RESULTS / "mechanism-vision"])
    assert two.names == ("evidence-growth", "evidence-mechanism")
    shutil.copytree(RESULTS / "growth-vision", tmp_path / "copy", ignore=shutil.ignore_patterns("tables"))
    same = read_domains([RESULTS / "growth-vision", tmp_path / "copy"])
    assert same.names == (str(RESULTS / "growth-vision"), str(tmp_path / "copy"))


def test_the_default_place_is_beside_the_first():
    assert common_place([Path("a/x"), Path("b/y"), Path("z")]) == Path("a/report-x-y-z")


def test_a_report_is_written_and_written_again(tmp_path):
    place = tmp_path / "both"
    written = write_domains(BOTH, place)
    assert written[0] == place / "report.html"
    before = {path: path.read_bytes() for path in written}
    assert {path: path.read_bytes() for path in write_domains(BOTH, place)} == before


@pytest.mark.parametrize("name", ["thesis.docx", "comparison.json"])
def test_a_directory_with_other_files_is_refused(tmp_path, name):
    (tmp_path / name).write_text("precious")
    with pytest.raises(InputError, match=f"expected a new directory or one that an earlier report made, found {name}"):
        write_domains(BOTH, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_page_or_tables_of_somebody_else_are_refused(tmp_path):
    (tmp_path / "report.html").write_text("<h1>my own</h1>")
    with pytest.raises(InputError, match=r"found report\.html; name a new directory with --out"):
        check_place(BOTH, tmp_path)
    (tmp_path / "report.html").unlink()
    (tmp_path / "tables").mkdir()
    with pytest.raises(InputError, match="found tables"):
        check_place(BOTH, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="expected a directory, found a file"):
        check_place(BOTH, tmp_path / "file")


def test_a_directory_given_twice_is_refused(tmp_path):
    with pytest.raises(InputError, match="expected every directory once, found it twice"):
        check_place([tmp_path, tmp_path / ".." / tmp_path.name], tmp_path / "new")
