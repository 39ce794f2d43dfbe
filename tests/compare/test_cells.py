"""A cell of a grid: its numbers are those of the logits and the log that it kept."""

import hashlib
import json

import numpy as np
import pytest

from compare.grids import logits_of
from demo.small_demo import SEEDS, small_demo
from tpkd.compare.cells import read_cell, read_metrics
from tpkd.compare.grid import Grid, GridCell
from tpkd.compare.run import read_comparison
from tpkd.objectives import names


@pytest.fixture(scope="module")
def made():
    return small_demo().report.parent


@pytest.fixture(scope="module")
def record(made):
    return read_comparison(made)


def test_every_cell_is_there_and_its_accuracy_is_that_of_its_logits(made, record):
    assert [(cell.objective, cell.seed) for cell in record.cells] == [(name, s) for name in names() for s in SEEDS]
    labels = np.load(made / "labels.npy")
    for cell in record.cells:
        assert cell.status == "finished"
        logits = logits_of(made, cell).astype(np.float64)
        assert cell.accuracy == pytest.approx((logits.argmax(1) == labels).mean())
        log_sum = np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1)) + logits.max(1)
        # The run averages in float32.
        assert cell.label_loss == pytest.approx((log_sum - logits[np.arange(len(labels)), labels]).mean(), rel=1e-5)
        assert (cell.steps, cell.samples) == (90, 1440)
        digest = hashlib.sha256((made / "students" / f"{cell.objective}-{cell.seed}.npy").read_bytes()).hexdigest()
        assert cell.logits_sha256 == digest


def test_curves_are_the_means_of_what_the_monitor_saw(made, record):
    cell = next(cell for cell in record.cells if cell.objective == "tpkd")
    lines = [json.loads(line) for line in (made / cell.directory / "metrics.jsonl").read_text().splitlines()]
    third = [line for line in lines if line["kind"] == "monitor" and line["epoch"] == 3]
    position = cell.curves.epochs.index(3)
    assert cell.curves.conditional_loss[position] == pytest.approx(
        np.mean([line["conditional_loss"] for line in third])
    )


def test_progress_is_what_the_log_has_of_each_epoch(made, record, tmp_path):
    cell = record.cells[0]
    lines = [json.loads(line) for line in (made / cell.directory / "metrics.jsonl").read_text().splitlines()]
    assert cell.progress.epochs == (1, 2, 3, 4, 5, 6)
    assert cell.progress.training_loss == tuple(line["loss"] for line in lines if line["kind"] == "epoch")
    assert (cell.progress.evaluated_epochs, cell.progress.accuracy) == ((6,), (cell.accuracy,))
    assert cell.progress.validated_epochs == ()
    path = tmp_path / "metrics.jsonl"
    more = [{"kind": "validation", "step": 1, "epoch": epoch, "accuracy": 0.25 * epoch} for epoch in (1, 2)]
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, *more]))
    found = read_metrics(path)[2]
    assert (found.validated_epochs, found.validation_accuracy) == ((1, 2), (0.25, 0.5))
    path.write_text("")
    assert read_metrics(path)[2] is None


def unrun(directory):
    """A grid of one cell that was never run."""

    class Config:
        pass

    config = Config()
    config.directory = directory / "ce"
    one = GridCell("ce", 42, config)
    return Grid("g", directory, ("ce",), (42,), (one,), config), one


def test_a_cell_without_a_result_is_missing_or_failed(tmp_path):
    grid, one = unrun(tmp_path)
    missing, failed = read_cell(grid, one, None), read_cell(grid, one, "no such file")
    assert (missing.name, missing.directory, missing.status, missing.problem) == ("ce-42", "ce", "missing", None)
    assert (failed.status, failed.problem, failed.accuracy) == ("failed", "no such file", None)
