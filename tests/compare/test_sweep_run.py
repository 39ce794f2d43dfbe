"""A sweep end to end, in small: what runs, what is kept, and what its record says."""

import json

import numpy as np
import pytest

from compare.sweeps import BETA, TEMPERATURE, trial, write_config
from demo.small_demo import inline_jobs
from tpkd.compare import run as comparison
from tpkd.compare.page import comparison_page, report_files
from tpkd.compare.reporting import read_records, write_report
from tpkd.compare.run import compare, open_grid
from tpkd.compare.sweep_run import mark_best, open_sweep, read_sweep, run_sweep
from tpkd.errors import InputError
from tpkd.training.directory import read_result

SWEEPS = ["beta=0.5,1", "temperature=4"]


@pytest.fixture
def ran(monkeypatch):
    """The names of the cells that run, in this process."""
    found = []

    def noting(executor, jobs, on_event):
        found.extend(jobs)
        inline_jobs(executor, jobs, on_event)

    monkeypatch.setattr(comparison, "run_jobs", noting)
    return found


def run(config, sweeps=SWEEPS, methods=("ce", "tpkd"), seeds=(1, 2), overrides=(), **options):
    return run_sweep(
        open_sweep(config, overrides, sweeps, methods=list(methods), seeds=list(seeds)), processes=1, **options
    )


def test_a_sweep_runs_once_and_its_numbers_are_those_of_its_runs(tmp_path, ran):
    config = write_config(tmp_path)
    record = run(config)
    assert ran == [
        *("ce-as-configured-1", "ce-as-configured-2"),
        *(f"tpkd-beta={beta},temperature=4-{seed}" for beta in ("0.5", "1") for seed in (1, 2)),
    ]
    home = tmp_path / "runs"
    for each in record.trials:
        results = [read_result(home / cell.directory) for cell in each.cells]
        assert {result.accuracy for result in results} == {None}
        assert each.mean == pytest.approx(np.mean([result.validation_accuracy for result in results]))
        assert each.standard_deviation == pytest.approx(np.std([cell.accuracy for cell in each.cells], ddof=1))
        assert each.label_loss == pytest.approx(np.mean([result.validation_label_loss for result in results]))
    assert record.data.validation_samples == results[0].validation_samples == 100
    assert [each.objective for each in record.best] == ["tpkd"]
    assert record.teacher.accuracy is not None
    assert not list(home.rglob("test-logits.safetensors")) + list(home.rglob("*.npy"))
    assert "evaluation" not in {
        json.loads(line)["kind"] for path in home.rglob("metrics.jsonl") for line in path.open()
    }
    assert read_sweep(home) == record
    ran.clear()
    assert run(config) == record
    assert ran == []
    more = run(config, ["temperature=1"], methods=["kd"], seeds=[1])
    assert ran == ["kd-temperature=1-1"]
    assert [(each.objective, each.settings) for each in more.trials] == [
        ("ce", {}),
        ("kd", {TEMPERATURE: 1}),
        *(("tpkd", {BETA: beta, TEMPERATURE: 4}) for beta in (0.5, 1)),
    ]
    assert more.keys == (TEMPERATURE, BETA)
    assert [each for each in more.trials if each.objective != "kd"] == list(record.trials)


def test_a_failed_cell_is_marked_and_runs_again(tmp_path, ran):
    config = write_config(tmp_path)
    place = tmp_path / "runs/sweep/tpkd/beta=1,temperature=4/seed-2"
    place.mkdir(parents=True)
    (place / "thesis.tex").write_text("mine")
    record = run(config, methods=["tpkd"])
    failed = [cell for each in record.trials for cell in each.cells if cell.status == "failed"]
    assert [(cell.seed, "thesis.tex" in cell.problem) for cell in failed] == [(2, True)]
    assert [each.settings[BETA] for each in record.best] == [0.5]
    (place / "thesis.tex").unlink()
    ran.clear()
    record = run(config, methods=["tpkd"])
    assert ran == ["tpkd-beta=1,temperature=4-2"]
    assert all(not each.missing_seeds for each in record.trials)


def test_a_sweep_of_another_configuration_is_refused_or_put_aside(tmp_path, ran):
    config = write_config(tmp_path)
    run(config, ["rate=0.1"], methods=["ce"], seeds=[1])
    with pytest.raises(InputError, match=r"epochs: expected 1, found 2; take another output, or --restart-changed"):
        run(config, ["rate=0.1"], methods=["ce"], seeds=[1], overrides=["epochs=2"])
    run(config, ["rate=0.1"], methods=["ce"], seeds=[1], overrides=["epochs=2"], restart_changed=True)
    assert (tmp_path / "runs/sweep/ce/rate=0.1/seed-1.replaced-1/result.json").exists()


def test_without_a_validation_part_it_is_refused_with_what_to_do(tmp_path):
    config = write_config(tmp_path, data={"name": "digits"})
    with pytest.raises(
        InputError, match=r"data: digits: expected a validation part, .*; data.validation: 0.1 holds out"
    ):
        run(config)


def test_a_setting_that_an_objective_refuses_is_named_before_anything_runs(tmp_path, ran):
    with pytest.raises(InputError, match="temperature: expected a positive"):
        run(write_config(tmp_path), ["temperature=4,-1"])
    assert ran == []


def test_the_page_of_the_comparison_shows_the_sweep(tmp_path, ran):
    config = write_config(tmp_path, selection="best-validation")
    home = tmp_path / "runs"
    record = run(config, ["beta=0.5,1"], methods=["tpkd"], seeds=[1])
    with pytest.raises(InputError, match=r"expected a comparison, found a sweep alone, whose table is in .*tables"):
        write_report(home)
    with pytest.raises(InputError, match=r"found evaluation.test false: it is part of a sweep"):
        write_report(home / record.trials[0].cells[0].directory)
    compared = compare(open_grid(config, (), methods=["ce", "tpkd"], seeds=[1]), processes=1)
    assert (compared.selection, compared.data.validation_samples) == ("best-validation", 100)
    records = read_records(home)
    assert records.sweep == record
    page, files = comparison_page(records), report_files(records)
    assert "Settings on the validation part" in page
    assert files["tables/sweep.md"] == (home / "tables/sweep.md").read_text()
    assert 'data-path="sweep.trials.0.mean"' in page
    for text in (page.split("<main>")[0], files["tables/application.md"], files["tables/seeds.md"]):
        assert "Students were selected by validation accuracy, not taken after the last epoch." in text
    assert "validation (%)" in files["tables/application.csv"]
    epochs = {cell.selected_epoch for cell in compared.cells}
    assert epochs == {1}
    assert "Epochs of the students, by seed: CE 1; TPKD 1." in files["tables/seeds.md"]


def test_the_best_has_the_highest_mean_then_the_lowest_loss_then_comes_first():
    def marked(*numbers):
        return [each.best for each in mark_best([trial("kd", {TEMPERATURE: t}, n) for t, n in enumerate(numbers, 1)])]

    assert marked({1: (0.5, 1.0)}, {1: (0.6, 9.0)}) == [False, True]
    assert marked({1: (0.6, 1.0)}, {1: (0.6, 0.5)}) == [False, True]
    assert marked({1: (0.6, 0.5)}, {1: (0.6, 0.5)}) == [True, False]
    assert marked({1: (0.5, 0.5), 2: (0.6, 0.5)}, {1: (0.9, 0.5), 2: None}) == [True, False]
    assert marked({1: (0.5, 0.5), 2: (0.6, 0.5)}, {1: (0.9, 0.5)}) == [True, False]  # one seed against two
    assert marked({1: None}, {1: None}) == [False, False]
    assert marked({1: (0.5, 1.0)}) == [False]  # nothing to compare with
