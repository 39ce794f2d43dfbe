import shutil

from cli.training_runs import run
from demo.small_demo import small_demo


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
