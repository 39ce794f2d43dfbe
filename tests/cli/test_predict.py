"""`tpkd predict`: what it prints, what it writes, and what it refuses."""

import csv
import json

import pytest

from cli.training_runs import run as run_command
from student.runs import digits_run, text_run


@pytest.fixture
def tpkd(capsys, monkeypatch):
    return lambda *arguments: run_command(capsys, monkeypatch, *arguments)


def test_digits_to_a_file_with_the_accuracy_of_its_rows(tpkd, tmp_path):
    run, out = digits_run(tmp_path), tmp_path / "found.csv"
    code, said, err = tpkd("predict", run, "digits", "--out", out, "--batch-size", 100)
    with open(out, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    share = sum(row["correct"] == "yes" for row in rows) / len(rows)
    assert code == 0
    assert said == f"719 samples, {share:.2%} correct\nwritten: {out}\n"
    assert "predicted: 719 of 719" in err
    assert len(rows) == 719


def test_its_accuracy_is_that_of_the_run(tpkd, tmp_path):
    run = text_run(tmp_path)
    result = json.loads((run / "result.json").read_text())
    data = next(line for line in (run / "config.yaml").read_text().splitlines() if "csv:" in line).split("name: ")[1]
    code, said, _ = tpkd("predict", run, data)
    assert code == 0
    assert f"{result['test_samples']} samples, {result['accuracy']:.2%} correct" in said


def test_lines_of_text_are_printed_up_to_ten(tpkd, tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("play a song\n" * 13)
    code, said, _ = tpkd("predict", text_run(tmp_path), path, "--batch-size", 4)
    lines = said.splitlines()
    assert code == 0
    assert [line.partition(":")[0] for line in lines[:10]] == [str(row) for row in range(10)]
    assert lines[10:] == ["… and 3 more; --out FILE writes all of them", "13 samples"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits", "--split", "tset"], "--split tset: expected one of train, test, validation; did you mean test?"),
        (["digits", "--out", "{folder}/found.cvs"], "did you mean .csv?"),
        (["digits", "--out", "{folder}/kept.csv"], "kept.csv: expected a new file, found one that exists"),
        (["digts"], "did you mean digits?"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(tpkd, tmp_path, arguments, message):
    (tmp_path / "kept.csv").write_text("mine")
    run = digits_run(tmp_path)
    code, said, err = tpkd("predict", run, *(argument.format(folder=tmp_path) for argument in arguments))
    assert (code, said) == (2, "")
    assert err.count("\n") == 1
    assert message in err
    assert (tmp_path / "kept.csv").read_text() == "mine"


def test_what_is_not_a_run_is_one_line_and_exit_2(tpkd, tmp_path):
    code, _, err = tpkd("predict", tmp_path, "digits")
    assert code == 2
    assert err == (
        f"tpkd: {tmp_path}: expected a run directory or an exported student, found neither config.yaml nor a "
        "config.json of ours in it\n"
    )


def test_a_table_without_labels(tpkd, tmp_path):
    (tmp_path / "new.csv").write_text("text\nplay a song\n")
    run, data = text_run(tmp_path), f"csv:{tmp_path / 'new.csv'}"
    code, _, err = tpkd("predict", run, data)
    assert code == 2
    assert err.endswith("--unlabelled\n")
    code, said, _ = tpkd("predict", run, data, "--unlabelled", "--out", tmp_path / "found.csv")
    assert (code, said.splitlines()[0]) == (0, "1 samples")
    assert "label" not in (tmp_path / "found.csv").read_text().splitlines()[0].split(",")
