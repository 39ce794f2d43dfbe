"""The import of a grid: what was brought is what the cells say, in any order, as often as one likes."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tools.evidence.setting import EXAMPLES_NAME, RECORD_NAME, SettingRecord
from tools.evidence_records import bring, bring_studies

from tpkd.arrays import open_array
from tpkd.config.loading import resolve_config
from tpkd.errors import InputError
from tpkd.quality.packed import STEP, read_packed
from tpkd.training.loop import train

SEEDS = (3, 4)


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """Two cells as `tpkd compare` leaves them, the start of one of them, and a teacher."""
    directory = tmp_path_factory.mktemp("grid")
    for seed in SEEDS:
        train(
            resolve_config(
                {
                    "output": str(directory / "{objective}-{seed}"),
                    "data": {"name": "digits", "validation": 0.2},
                    "views": {"scale": 16},
                    "student": {"model": "builtin:mlp", "options": {"input_size": 64, "hidden": [16]}},
                    "objective": "ce",
                    "optimizer": {"name": "sgd", "learning_rate": 0.1},
                    "seed": seed,
                    "epochs": 20,
                    "batch_size": 64,
                    "tracking": [],
                }
            )
        )
    # A teacher that knows nothing: what a student is sure of is blocked.
    np.save(directory / "teacher.npy", np.zeros_like(logits_of(directory / "ce-3")[0]))
    return directory


def logits_of(cell):
    return tuple(
        torch.cat(list(open_array(cell / "test-logits.safetensors", key=key).blocks(10_000))).numpy()
        for key in ("logits", "labels")
    )


def files(directory):
    return {path.relative_to(directory): path.read_bytes() for path in Path(directory).rglob("*") if path.is_file()}


def test_cells_come_with_their_scores(grid, tmp_path):
    record = bring(tmp_path, [grid])
    assert record == SettingRecord.from_json((tmp_path / RECORD_NAME).read_text())
    assert [(cell.method, cell.seed) for cell in record.cells] == [("ce", 3), ("ce", 4)]
    labels = np.load(tmp_path / EXAMPLES_NAME / "labels.npy").astype(int)
    scores = read_packed(tmp_path / EXAMPLES_NAME / "ce.npz", labels)
    assert scores.seeds == SEEDS
    for place, seed in enumerate(SEEDS):
        logits, expected = logits_of(grid / f"ce-{seed}")
        assert labels.tolist() == expected.tolist()
        assert scores.predictions[place].tolist() == logits.argmax(1).tolist()
        losses = -torch.from_numpy(logits).double().log_softmax(1)[range(len(labels)), labels].numpy()
        np.testing.assert_allclose(scores.log_losses[place], losses, atol=1.01 * STEP)
    assert (scores.temperatures > 0).all()
    assert scores.fitted_losses.mean() <= scores.log_losses.mean() + 0.05
    assert record.test_samples == len(labels)
    assert len(record.noise_floor) == 1
    assert record.noise_floor[0] > 0


def test_the_start_is_asked_again_where_it_was_not_kept(grid, tmp_path):
    bring(tmp_path, [grid])
    labels = np.load(tmp_path / EXAMPLES_NAME / "labels.npy").astype(int)
    start = read_packed(tmp_path / EXAMPLES_NAME / "start.npz", labels)
    assert start.seeds == (0,)
    assert (start.predictions == labels).mean() < 0.4


def test_bringing_in_parts_and_again_gives_the_same_bytes(grid, tmp_path):
    bring(tmp_path / "whole", [grid])
    parts = []
    for seed in reversed(SEEDS):
        part = tmp_path / f"part-{seed}"
        part.mkdir()
        (part / f"ce-{seed}").symlink_to(grid / f"ce-{seed}")
        parts.append(part)
        bring(tmp_path / "parts", [part])
    bring(tmp_path / "parts", [grid])
    bring(tmp_path / "parts", [grid])
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


def test_cells_stay_when_their_logits_are_gone(grid, tmp_path):
    before = bring(tmp_path, [grid])
    part = tmp_path / "rest"
    part.mkdir()
    (part / "ce-4").symlink_to(grid / "ce-4")
    after = bring(tmp_path, [part])
    assert after.cells == before.cells
    assert after.noise_floor == before.noise_floor


def test_other_test_samples_are_refused(grid, tmp_path):
    bring(tmp_path, [grid])
    path = tmp_path / EXAMPLES_NAME / "labels.npy"
    labels = np.load(path)
    np.save(path, labels[::-1])
    with pytest.raises(InputError, match="expected the test labels of"):
        bring(tmp_path, [grid])


def test_a_directory_without_cells_is_refused(tmp_path):
    with pytest.raises(InputError, match="expected finished cells to bring, found none"):
        bring(tmp_path / "target", [tmp_path])


def test_a_line_of_the_record_is_a_cell(grid, tmp_path):
    bring(tmp_path, [grid])
    lines = (tmp_path / RECORD_NAME).read_text().splitlines()
    assert sum(line.startswith('{"method":"ce"') for line in lines) == 2
    assert json.loads("".join(lines))["schema"] == 1


def test_studies_come_alone(tmp_path):
    study = tmp_path / "grid" / "ce-42" / "studies" / "continuation.json"
    study.parent.mkdir(parents=True)
    study.write_text("{}")
    (study.parent / "continuation.md").write_text("a table")
    assert bring_studies(tmp_path / "target", [tmp_path / "grid"]) == 1
    assert files(tmp_path / "target") == {Path("studies/ce-42/continuation.json"): b"{}"}
