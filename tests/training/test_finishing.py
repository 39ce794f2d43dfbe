"""What a finished run keeps: weights in the precision asked for, and no checkpoints where none are wanted."""

import shutil
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import nn

import tpkd
from tpkd.class_names import recorded_names
from tpkd.config.finished import FinishedConfig
from tpkd.data.loading import load_dataset
from tpkd.errors import InputError
from tpkd.training.directory import RunResult, checkpoints_of, read_result
from tpkd.training.finishing import round_weights, tidy
from tpkd.training.loop import snapshot_states, train
from training.tiny import make_config, online

WIDE = {"model": "builtin:mlp", "options": {"input_size": 64, "hidden": [400]}, "layers": [1]}


def wide_config(tmp_path, *overrides):
    """Most of its bytes are weights."""
    return online(make_config(tmp_path, overrides, student=WIDE, snapshots=[1, 3], objective="ce"))


def size(path):
    path = Path(path)
    return (
        path.stat().st_size
        if path.is_file()
        else sum(part.stat().st_size for part in path.rglob("*") if part.is_file())
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that keeps everything."""
    config = wide_config(tmp_path_factory.mktemp("whole"))
    train(config)
    return config


def kept_under(whole, tmp_path, *overrides):
    config = wide_config(tmp_path, *overrides)
    result = train(config)
    return Path(config.directory), result, Path(whole.directory)


def test_a_run_keeps_its_checkpoints_unless_it_is_told_not_to(whole):
    directory = Path(whole.directory)
    assert len(checkpoints_of(directory).steps()) == 2
    assert len(snapshot_states(directory, 3).steps()) == 1
    assert read_result(directory).kept is None
    assert "kept" not in (directory / "result.json").read_text()


def test_bytes_on_disk(whole, tmp_path):
    """Student, optimiser and weights of each checkpoint are about the same size, S: 2 x 2 S in checkpoints, 2 x 3 S in
    snapshots, S for the student."""
    small, _, large = kept_under(
        whole, tmp_path, "finished.checkpoints=false", "finished.snapshots=weights", "finished.weights=fp16"
    )
    student = size(large / "student.safetensors")
    assert size(large) > 10 * student
    assert size(small / "student.safetensors") < 0.55 * student
    assert size(small) < 3.5 * student
    assert not (small / "checkpoints").exists()
    assert sorted(path.name for path in (small / "snapshots").iterdir()) == [
        "epoch-001.safetensors",
        "epoch-003.safetensors",
    ]
    assert "MB of saved states, as `finished` asks" in (small / "run.log").read_text()


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_student_kept_in_half_precision_is_that_student_rounded(whole, tmp_path, precision):
    directory, result, large = kept_under(whole, tmp_path, f"finished.weights={precision}")
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    trained, kept = (load_file(path / "student.safetensors") for path in (large, directory))
    for name, value in trained.items():
        assert torch.equal(kept[name], value.to(dtype))
    assert recorded_names(directory / "student.safetensors") == result.class_names
    # The result is that of the student as trained; what is kept is measured beside it.
    full = read_result(large)
    assert (result.accuracy, result.student_fingerprint) == (full.accuracy, full.student_fingerprint)
    assert result.kept.precision == precision
    assert RunResult.from_json((directory / "result.json").read_text()) == result
    evaluated = load_file(directory / "test-logits.safetensors")
    test = load_dataset("digits", "test")
    rows = [test.ids.tolist().index(sample) for sample in evaluated["sample_ids"].tolist()]
    student = tpkd.load_student(directory)
    assert student.module.classifier.weight.dtype == torch.float32
    found = student.predict(test.take(rows))
    correct = int((found.indices == evaluated["labels"]).sum())
    assert correct == round(result.kept.accuracy * len(rows))
    assert (
        f"kept in {precision}: accuracy {result.kept.accuracy:.4f}, as trained {result.accuracy:.4f}"
        in (directory / "run.log").read_text()
    )


def test_a_student_kept_in_half_precision_goes_out(whole, tmp_path):
    from tpkd.student.exporting import export_student

    directory, result, _ = kept_under(whole, tmp_path, "finished.weights=bf16")
    images = load_dataset("digits", "test").take(range(20))
    expected = tpkd.load_student(directory).predict(images).logits
    export_student(directory, tmp_path / "out", "safetensors")
    assert torch.equal(tpkd.load_student(tmp_path / "out").predict(images).logits, expected)
    assert f"kept in bf16, which gives {result.kept.accuracy:.2%}" in (tmp_path / "out" / "README.md").read_text()
    damaged = load_file(directory / "student.safetensors")
    damaged["fc.bias"][0] += 1
    from tpkd.models.weights import save_weights

    module = tpkd.load_student(directory).module
    module.load_state_dict(damaged)
    save_weights(module, directory / "student.safetensors", result.class_names, dtype=torch.bfloat16)
    with pytest.raises(InputError, match="damaged or replaced"):
        tpkd.load_student(directory)


def test_a_test_split_that_is_not_looked_at_stays_unseen(tmp_path):
    config = wide_config(tmp_path, "finished.weights=fp16", "evaluation.test=false", "data.validation=0.2")
    kept = train(config).kept
    assert (kept.precision, kept.accuracy, kept.label_loss) == ("fp16", None, None)
    assert tpkd.load_student(config.directory).recipe.weights_fingerprint == kept.fingerprint


def test_weights_that_do_not_fit_are_not_rounded():
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.bias[1] = 1e6
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    assert round_weights(layer, torch.float16) == "bias"
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())
    assert round_weights(layer, torch.bfloat16) is None
    assert not torch.equal(layer.weight, before["weight"])


def test_integers_are_left_alone():
    norm = nn.BatchNorm1d(2)
    norm.num_batches_tracked += 2**20 + 1  # more digits than half precision has
    assert round_weights(norm, torch.float16) is None
    assert norm.num_batches_tracked == 2**20 + 1


def test_the_same_command_frees_a_run_that_is_finished(whole, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(whole.directory, directory)
    (directory / "checkpoints" / "step-000099.damaged-1").mkdir()
    result = read_result(directory)
    before = (directory / "result.json").read_bytes()
    assert train(whole, directory) == result
    assert len(checkpoints_of(directory).steps()) == 2
    finished = FinishedConfig(checkpoints=False)
    assert train(whole.model_copy(update={"finished": finished}), directory) == result
    assert (directory / "result.json").read_bytes() == before
    # What was set aside is not a checkpoint, and not ours to remove.
    assert [path.name for path in (directory / "checkpoints").iterdir()] == ["step-000099.damaged-1"]
    assert len(snapshot_states(directory, 1).steps()) == 1


def test_the_state_of_a_snapshot_without_its_weights_stays(whole, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(whole.directory, directory)
    (directory / "snapshots" / "epoch-001.safetensors").unlink()
    removed = tidy(directory, FinishedConfig(snapshots="weights"))
    assert removed == size(Path(whole.directory) / "snapshots" / "epoch-003")
    assert snapshot_states(directory, 1).steps()
    assert not snapshot_states(directory, 3).directory.exists()


class InterruptedRunError(Exception):
    pass


def test_a_run_keeps_everything_until_it_has_its_result(tmp_path):
    """Stopped at its last step, it has its checkpoints; continued, it has its result and no checkpoints."""
    config = wide_config(tmp_path, "finished.checkpoints=false", "finished.snapshots=weights")

    def stop(report):
        if report.step == report.num_steps:
            raise InterruptedRunError

    with pytest.raises(InterruptedRunError):
        train(config, on_step=stop)
    directory = Path(config.directory)
    assert len(checkpoints_of(directory).steps()) == 2
    assert snapshot_states(directory, 1).steps()
    train(config)
    assert not (directory / "checkpoints").exists()


def test_a_run_from_before_the_key_is_the_same_run(whole, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(whole.directory, directory)
    saved = yaml.safe_load((directory / "config.yaml").read_text())
    del saved["finished"], saved["student"]["weight_map"], saved["teacher"]["weight_map"]
    (directory / "config.yaml").write_text(yaml.safe_dump(saved))
    (directory / "result.json").unlink()
    finished = FinishedConfig(weights="fp16")
    assert train(whole.model_copy(update={"finished": finished}), directory).kept.precision == "fp16"
