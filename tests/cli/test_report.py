import shutil
from pathlib import Path

from cli.training_runs import run
from demo.small_demo import small_demo

RESULTS = Path(__file__).parents[2] / "results"


def test_a_comparison_gives_the_page_and_tables_it_gave_before(tmp_path, capsys, monkeypatch):
    made, copy = small_demo().report.parent, tmp_path / "copy"
    shutil.copytree(made, copy, ignore=shutil.ignore_patterns("tables", "report.html", "checkpoints"))
    code, out, _ = run(capsys, monkeypatch, "report", copy)
    assert code == 0
    assert f"page: {copy / 'report.html'}" in out
    assert (copy / "report.html").read_bytes() == (made / "report.html").read_bytes()
    written = {path.name: path.read_bytes() for path in (copy / "tables").iterdir()}
    assert written == {path.name: path.read_bytes() for path in (made / "tables").iterdir()}


def test_a_single_run_has_a_report_too(tmp_path, capsys, monkeypatch):
    shutil.copytree(small_demo().report.parent / "ce" / "seed-42", tmp_path / "run")
    code, _, err = run(capsys, monkeypatch, "report", tmp_path / "run")
    assert code == 0, err
    page = (tmp_path / "run" / "report.html").read_text()
    assert "1 objective with 1 seed" in page
    assert "Full-imitation blocking leaves conditional knowledge unlearned" in page


def test_other_directories_and_damaged_records_are_refused(tmp_path, capsys, monkeypatch):
    code, _, err = run(capsys, monkeypatch, "report", tmp_path)
    assert code == 2
    assert f"{tmp_path}: expected a comparison or a run" in err
    (tmp_path / "comparison.json").write_text('{"schema": 1}')
    code, _, err = run(capsys, monkeypatch, "report", tmp_path)
    assert code == 2
    assert "comparison.json" in err
    assert err.count("\n") == 1


def test_two_comparisons_give_one_table_beside_the_first(tmp_path, capsys, monkeypatch):
    for name in ("growth-vision", "cpu-text"):
        shutil.copytree(RESULTS / name, tmp_path / name, ignore=shutil.ignore_patterns("teacher-cache", "tables"))
    both = (tmp_path / "growth-vision", tmp_path / "cpu-text")
    code, out, err = run(capsys, monkeypatch, "report", *both)
    place = tmp_path / "report-growth-vision-cpu-text"
    assert (code, err) == (0, "")
    assert f"page: {place / 'report.html'}" in out
    assert "| method | CIFAR-100, 200 epochs | CLINC150, 4 epochs |" in (place / "tables" / "domains.md").read_text()
    code, _, _ = run(capsys, monkeypatch, "report", *both, "--out", tmp_path / "elsewhere")
    assert code == 0
    assert (tmp_path / "elsewhere" / "report.html").read_bytes() == (place / "report.html").read_bytes()
    assert not (tmp_path / "growth-vision" / "tables").exists()


def test_a_page_of_several_never_replaces_other_files(tmp_path, capsys, monkeypatch):
    both = (RESULTS / "growth-vision", RESULTS / "mechanism-vision")
    (tmp_path / "notes.txt").write_text("mine")
    code, _, err = run(capsys, monkeypatch, "report", *both, "--out", tmp_path)
    assert (code, err.count("\n")) == (2, 1)
    assert f"{tmp_path}: expected a new directory or one that an earlier report made, found notes.txt" in err
    code, _, err = run(capsys, monkeypatch, "report", *both, "--out", both[0])
    assert code == 2
    assert "expected a new directory" in err


def test_options_of_the_other_kind_of_report_are_refused(tmp_path, capsys, monkeypatch):
    both = (RESULTS / "growth-vision", RESULTS / "mechanism-vision")
    for arguments, said in (
        ((both[0], "--out", tmp_path / "new"), "--out: expected several directories"),
        ((*both, "--paper"), "--paper: expected one directory"),
    ):
        code, _, err = run(capsys, monkeypatch, "report", *arguments)
        assert (code, err.count("\n")) == (2, 1)
        assert said in err


def test_the_paper_comes_first_on_request(tmp_path, capsys, monkeypatch):
    shutil.copytree(RESULTS / "growth-vision", tmp_path / "run")
    code, _, _ = run(capsys, monkeypatch, "report", tmp_path / "run", "--paper")
    assert code == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.index("The paper's claims, one by one") < page.index("Full training")
