"""A comparison in which every seed draws its own samples and has a start of its own."""

import json
from pathlib import Path

import numpy as np
import pytest

from demo.small_demo import inline_jobs
from tpkd.compare import run
from tpkd.compare.grid import plan_grid
from tpkd.compare.reading import what_ran
from tpkd.compare.record import ComparisonRecord
from tpkd.compare.run import compare, open_grid
from tpkd.compare.sweep import plan_sweep
from tpkd.config.loading import load_config
from tpkd.errors import InputError
from tpkd.training.directory import read_result

CONFIG = {
    "output": "grid/{objective}-{seed}",
    "data": {"name": "vector:data", "per_class": 4},
    "by_seed": ["data", "student"],
    "student": {"model": "builtin:mlp", "options": {"hidden": [8], "residual": True}, "head": "probe"},
    "teacher": {"model": "builtin:mlp", "options": {"hidden": [16]}, "untrained": True},
    "objective": "ce",
    "optimizer": {"name": "sgd", "learning_rate": 0.1},
    "epochs": 1,
    "batch_size": 4,
    "tracking": [],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A finished grid of two methods and two seeds."""
    place = tmp_path_factory.mktemp("by-seed")
    (place / "grid.yaml").write_text(json.dumps(CONFIG))
    generator = np.random.default_rng(0)
    (place / "data").mkdir()
    for part, rows in (("train", 60), ("test", 30)):
        labels = np.arange(rows) % 3
        features = generator.standard_normal((rows, 5)) + 3 * np.eye(5)[labels]
        np.savez(place / "data" / f"{part}.npz", features=features, labels=labels)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr(run, "run_jobs", inline_jobs)
        compare(open_grid("grid.yaml", [], methods=["ce", "tpkd"], seeds=[1, 2]))
    return place


@pytest.fixture
def record(made):
    return ComparisonRecord.from_json((made / "grid/comparison.json").read_text())


def test_methods_of_a_seed_share_samples_and_start_and_seeds_do_not(made, record):
    results = {(cell.objective, cell.seed): read_result(made / "grid" / cell.directory) for cell in record.cells}
    assert len(results) == 4
    for start in record.starts:
        for objective in ("ce", "tpkd"):
            assert results[objective, start.seed].data_fingerprint == start.data_fingerprint
    assert len({start.data_fingerprint for start in record.starts}) == 2
    assert len({start.fingerprint for start in record.starts}) == 2


def test_the_start_of_every_seed_is_kept_and_their_mean_is_the_start(made, record):
    labels = np.load(made / "grid/labels.npy")
    for start in record.starts:
        logits = np.load(made / f"grid/start-{start.seed}.npy")
        assert start.accuracy == pytest.approx(np.mean(logits.argmax(1) == labels), abs=1e-6)
    assert record.start.accuracy == pytest.approx(np.mean([start.accuracy for start in record.starts]))
    assert "for each seed, all start from the same student (on average " in what_ran(record)
    assert not {"data.seed", "student.seed", "student.probe_file"} & record.protocol.keys()
    assert record.protocol["by_seed"] == ["data", "student"]


def test_a_cell_says_which_seed_drew_its_samples(made):
    saved = load_config(made / "grid/tpkd-2/config.yaml")
    assert (saved.data.seed, saved.student.seed, saved.student.probe_file) == (2, 2, "grid/probe-2.safetensors")


def test_a_finished_grid_runs_nothing_again(made, monkeypatch):
    monkeypatch.chdir(made)
    monkeypatch.setattr(run, "run_jobs", lambda *arguments: pytest.fail("nothing is left to run"))
    compare(open_grid("grid.yaml", [], methods=["ce", "tpkd"], seeds=[1, 2]))


def test_other_samples_of_one_seed_are_noticed(made, monkeypatch):
    monkeypatch.chdir(made)
    data = dict(np.load("data/train.npz"))
    try:
        np.savez("data/train.npz", **(data | {"features": data["features"] + 1}))
        with pytest.raises(InputError, match="data_fingerprint: expected"):
            compare(open_grid("grid.yaml", [], methods=["ce"], seeds=[1]))
    finally:
        np.savez("data/train.npz", **data)


def test_a_sweep_has_the_start_of_each_seed(made, monkeypatch):
    monkeypatch.chdir(made)
    sweep = plan_sweep("grid.yaml", sweeps=["rate=0.1,0.2"], methods=["ce"], seeds=[1, 2])
    assert {(cell.seed, cell.config.data.seed, cell.config.student.probe_file) for cell in sweep.grid.cells} == {
        (1, 1, str(Path("grid/probe-1.safetensors"))),
        (2, 2, str(Path("grid/probe-2.safetensors"))),
    }


def test_a_probe_for_all_seeds_is_refused(made, monkeypatch):
    monkeypatch.chdir(made)
    with pytest.raises(InputError, match=r"student\.probe_file: expected none beside by_seed"):
        plan_grid("grid.yaml", ["student.probe_file=probe.safetensors"], seeds=[1])
