"""`tpkd compare --sweep` as a user meets it: one table, and settings to paste."""

import pytest
import yaml

from cli.training_runs import run
from compare.sweeps import write_config
from demo.small_demo import inline_jobs
from tpkd.compare.sweep_run import read_sweep
from tpkd.config.loading import load_config


@pytest.fixture
def tpkd(capsys, monkeypatch):
    monkeypatch.setattr("tpkd.compare.run.run_jobs", inline_jobs)
    monkeypatch.setenv("COLUMNS", "120")
    return lambda *arguments: run(capsys, monkeypatch, *arguments)


def test_the_best_settings_can_be_pasted_into_the_configuration(tpkd, tmp_path):
    config = write_config(tmp_path, methods={"kd": {"objective.settings": {"kd_weight": 2.0}}})
    command = ["compare", config, "--methods", "ce,kd,tpkd", "--seeds", "1", "--sweep", "temperature=1,4"]
    code, out, err = tpkd(*command, "--sweep", "rate=0.05,0.2")
    assert code == 0
    record = read_sweep(tmp_path / "runs")
    assert [trial.objective for trial in record.best] == ["ce", "kd", "tpkd"]
    for heading in ("method", "temperature", "rate", "seeds", "validation accuracy", "best"):
        assert heading.split()[0] in out.splitlines()[1] + out.splitlines()[2]
    assert out.count("yes") == 3
    assert "The test split is not shown and was not evaluated" in out
    assert f"written: {tmp_path / 'runs' / 'sweep.json'}" in out
    assert "10 of 10" in err
    told, _, section = out.partition("methods:\n")
    assert told.rstrip().endswith(f"the best settings, for the section `methods` of {config}:")
    pasted = yaml.safe_load(f"methods:\n{section}")
    config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | pasted))
    for trial in record.best:
        ran = load_config(tmp_path / "runs" / trial.cells[0].directory / "config.yaml")
        chosen = load_config(config, [("objective", trial.objective), ("seed", 1)])
        assert chosen.objective.settings == ran.objective.settings
        assert chosen.optimizer == ran.optimizer


def test_a_failed_cell_is_exit_1_and_named(tpkd, tmp_path):
    config = write_config(tmp_path)
    place = tmp_path / "runs/sweep/tpkd/beta=1/seed-5"
    place.mkdir(parents=True)
    (place / "thesis.tex").write_text("mine")
    code, out, _ = tpkd("compare", config, "--methods", "tpkd", "--seeds", "5", "--sweep", "beta=0.5,1")
    assert code == 1
    assert "tpkd beta=1, seed 5, failed: " in out
    assert "thesis.tex" in out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--sweep", "bta=1"], "--sweep bta: expected a setting of the methods"),
        (["--sweep", "beta"], "--sweep beta: expected NAME=VALUE,VALUE, such as beta=0.5,1"),
        (["--sweep", "beta=1", "--methods", "tkpd"], "did you mean tpkd"),
        (["--sweep", "beta=1", "data={name: digits}"], "data.validation: 0.1 holds out a share of the training part"),
        (["--sweep", "epochs=1,2"], "--sweep epochs: expected a setting that cells need not share"),
        (["evaluation.test=false"], "evaluation.test: expected true in a comparison"),
    ],
)
def test_wrong_input_is_exit_2_and_one_line(tpkd, tmp_path, more, message):
    code, out, err = tpkd("compare", write_config(tmp_path), *more)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_comparison_of_selected_students_says_so(tpkd, tmp_path):
    config = write_config(tmp_path)
    command = ["compare", config, "--methods", "ce", "--seeds", "1", "selection=best-validation"]
    code, out, _ = tpkd(*command)
    assert code == 0
    assert "validation" in out.splitlines()[1]
    assert "Students were selected by validation accuracy, not taken after the last epoch." in out
