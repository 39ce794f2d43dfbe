"""`tpkd audit` as a user meets it."""

import numpy as np
from typer.testing import CliRunner

from audit.cases import make_case
from cli.training_runs import run
from tpkd.cli.main import app
from tpkd.data import load_dataset

runner = CliRunner()


def test_it_says_what_it_found_and_where_the_page_is(tmp_path):
    case = make_case(tmp_path)
    options = ["--teacher", tmp_path / "teacher.npy", "--labels", tmp_path / "labels.npy", "--out", tmp_path / "audit"]
    students = [tmp_path / "student-0.npy", tmp_path / "student-1.npy"]
    result = runner.invoke(app, list(map(str, ["audit", *students, *options, "--table", tmp_path / "t.csv"])))
    assert result.exit_code == 0, result.output
    right = (case.students[1].argmax(-1) == case.labels).mean()
    assert f"student-1: {100 * right:.1f} % right" in result.output
    assert "student-0 -> student-1:" in result.output
    assert str(tmp_path / "audit" / "index.html") in result.output.replace("\n", "")
    assert (tmp_path / "t.csv").is_file()


def test_samples_come_from_a_data_set_by_name(tmp_path, capsys, monkeypatch):
    labels = load_dataset("digits", "test").labels
    logits = np.random.default_rng(0).normal(size=(len(labels), 10))
    for name, values in (("student", logits), ("teacher", 2 * logits + np.eye(10)[labels]), ("labels", labels)):
        np.save(tmp_path / f"{name}.npy", values)
    monkeypatch.chdir(tmp_path)
    arguments = ["audit", "student.npy", "--teacher", "teacher.npy", "--labels", "labels.npy", "--out", "audit"]
    result = runner.invoke(app, [*arguments, "--data", "digits"])
    assert result.exit_code == 0, result.output
    assert "data:image/png;base64," in (tmp_path / "audit" / "data" / "inputs" / "0.js").read_text()
    code, _, said = run(capsys, monkeypatch, *arguments, "--data", "digits", "--split", "train")
    assert code == 2
    assert "digits (train): expected 719 samples as there are logits, found 1078" in said


def test_a_wrong_input_is_one_line(tmp_path, capsys, monkeypatch):
    code, _, said = run(capsys, monkeypatch, "audit", tmp_path / "no.npy", "--out", tmp_path / "audit")
    assert code == 2
    assert "--teacher: expected a file beside files of logits, found none" in said
    assert "Traceback" not in said
