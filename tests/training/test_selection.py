"""The student of a run by validation: which one it is, and that interruptions do not change it."""

import json

import pytest
import torch
from safetensors.torch import load_file

from tpkd.config.loading import ConfigError
from tpkd.data.configured import load_data
from tpkd.errors import InputError
from tpkd.training import loop
from tpkd.training.checkpoint import Checkpoints
from tpkd.training.directory import VALIDATION_LOGITS_NAME, read_result
from tpkd.training.evaluation import Evaluation
from tpkd.training.loop import train
from tpkd.training.run import assemble, start_accelerator
from tpkd.training.selection import choose
from tpkd.training.state import restore
from training.equality import assert_same_run, metrics_of
from training.forgetful import forgetful
from training.tiny import make_config

DATA = {"name": "digits", "validation": 0.2}
LOST = 58
"""The step from which on a forgetful run knows nothing: the first of its fourth epoch of six."""


def selecting(directory, **changes):
    settings = {
        "data": DATA,
        "student": {"model": "builtin:mlp", "options": {"input_size": 64, "hidden": [32], "dropout": 0.2}},
        "teacher": None,
        "objective": "ce",
        "optimizer": {"name": "sgd", "learning_rate": 0.05},
        "batch_size": 8,
        "epochs": 6,
        "selection": "best-validation",
    }
    return make_config(directory, **{**settings, **changes})


@pytest.fixture
def forgets(monkeypatch):
    monkeypatch.setattr(loop, "take_step", forgetful(LOST))


def lines(directory, kind):
    return [line for line in metrics_of(directory) if line["kind"] == kind]


def numbers(accuracy, label_loss):
    nothing = torch.empty(0)
    return Evaluation(accuracy, label_loss, nothing, nothing, nothing)


def test_accuracy_comes_first_then_label_loss_then_the_earlier_epoch():
    network, best, chosen = torch.nn.BatchNorm1d(2), None, []
    for epoch, found in enumerate([(0.5, 1.0), (0.75, 3.0), (0.75, 2.0), (0.75, 2.0), (0.6, 0.1)], start=1):
        network.running_mean.fill_(epoch)
        best = choose(best, network, epoch, numbers(*found))
        chosen.append(best.epoch)
    assert chosen == [1, 2, 3, 3, 3]
    assert best.numbers == {"epoch": 3, "accuracy": 0.75, "label_loss": 2.0}
    assert best.state["running_mean"].tolist() == [3.0, 3.0]  # a copy, which later steps leave alone


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("selection")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "take_step", forgetful(LOST))
        train(selecting(directory, snapshots=[1, 2, 3, 4, 5, 6]), directory / "run")
    return directory / "run"


def test_the_result_is_the_best_student_on_the_validation_part(finished):
    result, seen = read_result(finished), lines(finished, "validation")
    assert [line["epoch"] for line in seen] == [1, 2, 3, 4, 5, 6]
    best = max(seen, key=lambda line: (line["accuracy"], -line["label_loss"], -line["epoch"]))
    assert best["epoch"] <= 3
    assert (result.selection, result.selected_epoch) == ("best-validation", best["epoch"])
    assert (result.validation_accuracy, result.validation_label_loss) == (best["accuracy"], best["label_loss"])
    chosen = load_file(finished / "student.safetensors")
    snapshot = load_file(finished / f"snapshots/epoch-{best['epoch']:03d}.safetensors")
    assert all(chosen[name].equal(snapshot[name]) for name in chosen)
    logits = load_file(finished / "test-logits.safetensors")
    assert result.accuracy == pytest.approx((logits["logits"].argmax(-1) == logits["labels"]).double().mean().item())
    log = (finished / "run.log").read_text()
    assert f"the student of epoch {best['epoch']} of 6, selected by validation accuracy" in log
    assert f"validation after epoch 2: accuracy {seen[1]['accuracy']:.4f}" in log


def test_the_numbers_of_the_validation_part_are_those_of_its_samples(finished):
    config = selecting(finished.parent)
    part = load_data(config, "validation")
    run = assemble(config, start_accelerator(config), finished)
    run.student.load_state_dict(load_file(finished / "student.safetensors"))
    inputs = run.preparation.inputs(part, list(range(len(part))))
    right = (run.student.eval()(inputs).argmax(-1).numpy() == part.labels).mean()
    result = read_result(finished)
    assert right > 0.2
    assert result.validation_samples == len(part)
    assert result.validation_accuracy == pytest.approx(right)


def test_logits_on_the_validation_part_are_those_of_the_student(finished):
    result, kept = read_result(finished), load_file(finished / VALIDATION_LOGITS_NAME)
    assert len(kept["labels"]) == result.validation_samples
    accuracy = (kept["logits"].argmax(-1) == kept["labels"]).double().mean().item()
    assert accuracy == pytest.approx(result.validation_accuracy, abs=1e-6)


def test_the_test_line_names_the_epoch_that_was_selected(finished):
    (line,) = lines(finished, "evaluation")
    assert (line["epoch"], line["step"]) == (read_result(finished).selected_epoch, read_result(finished).steps)


class StoppedError(Exception):
    pass


def stop_after(step):
    def on_step(report):
        if report.step == step:
            raise StoppedError

    return on_step


def test_a_run_that_stops_and_continues_selects_the_same_student(tmp_path, forgets):
    config = selecting(tmp_path, checkpoints={"every": 8, "keep": 2})
    whole = train(config, tmp_path / "whole")
    assert whole.selected_epoch <= 3
    for step in (11, LOST + 10, whole.steps):
        with pytest.raises(StoppedError):
            train(config, tmp_path / "parts", on_step=stop_after(step))
    assert train(config, tmp_path / "parts").selected_epoch == whole.selected_epoch
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    kept = Checkpoints(tmp_path / "parts" / "checkpoints", keep=2).load()
    assert kept.values["best"]["epoch"] == whole.selected_epoch
    assert kept.groups["best"].keys() == kept.groups["model"].keys()


def test_a_checkpoint_of_another_validation_part_is_refused(tmp_path):
    config = selecting(tmp_path, checkpoints={"every": 1, "keep": 2})
    with pytest.raises(StoppedError):
        train(config, tmp_path / "run", on_step=stop_after(8))
    state = next((tmp_path / "run" / "checkpoints").glob("*8")) / "state.json"
    values = json.loads(state.read_text())["values"]
    assert values["validation"] == load_data(config, "validation").fingerprint
    fewer = config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"limit": 20})})
    run = assemble(fewer, start_accelerator(fewer), tmp_path)
    with pytest.raises(InputError, match=r"checkpoint of step 8: validation: expected '\w+', found '\w+'"):
        restore(run, Checkpoints(tmp_path / "run" / "checkpoints", keep=2).load())


def test_epochs_between_evaluations_are_those_of_the_candidates(tmp_path):
    config = selecting(tmp_path, evaluation={"limit": 100, "every": 4})
    result = train(config, tmp_path / "run")
    assert [line["epoch"] for line in lines(tmp_path / "run", "validation")] == [4, 6]
    assert [line["epoch"] for line in lines(tmp_path / "run", "evaluation")] == [4, result.selected_epoch]
    assert result.selected_epoch in (4, 6)


def test_a_validation_part_without_selection_is_reported_and_changes_no_number(tmp_path):
    config = selecting(tmp_path, selection="last", evaluation={"limit": 100, "every": 2})
    result = train(config, tmp_path / "run")
    seen = lines(tmp_path / "run", "validation")
    assert [line["epoch"] for line in seen] == [2, 4, 6]
    assert (result.selection, result.selected_epoch) == ("last", None)
    assert (result.validation_accuracy, result.validation_samples) == (seen[-1]["accuracy"], 100)
    plain = json.loads((tmp_path / "run" / "result.json").read_text())
    assert not {"selection", "selected_epoch"} & plain.keys()
    assert "validation" not in Checkpoints(tmp_path / "run" / "checkpoints", keep=2).load().values
    chosen = train(config.model_copy(update={"selection": "best-validation"}), tmp_path / "best")
    assert lines(tmp_path / "best", "epoch") == lines(tmp_path / "run", "epoch")
    assert chosen.validation_accuracy >= result.validation_accuracy


def test_a_run_without_a_validation_part_says_nothing_about_one(tmp_path):
    train(selecting(tmp_path, selection="last", data={"name": "digits"}, epochs=1), tmp_path / "run")
    assert "validation" not in (tmp_path / "run" / "result.json").read_text()
    assert lines(tmp_path / "run", "validation") == []


def test_a_run_judged_on_the_validation_part_alone_never_looks_at_the_test_split(tmp_path):
    config = selecting(tmp_path, selection="last", epochs=2, evaluation={"every": 1, "test": False})
    result = train(config, tmp_path / "run")
    assert (result.accuracy, result.label_loss, result.test_samples) == (None, None, None)
    assert result.validation_accuracy is not None
    assert lines(tmp_path / "run", "evaluation") == []
    assert not (tmp_path / "run" / "test-logits.safetensors").exists()
    assert train(config, tmp_path / "run") == result


@pytest.mark.parametrize("change", [{"selection": "best-validation"}, {"evaluation": {"test": False}}])
def test_a_validation_part_that_is_needed_and_missing_is_named_with_what_to_do(tmp_path, change):
    config = selecting(tmp_path, **{"selection": "last", "data": {"name": "digits"}, **change})
    problem = "data: digits: expected a validation part, .*; data.validation: 0.1 holds out a share"
    with pytest.raises(ConfigError, match=problem):
        train(config, tmp_path / "run")


def test_a_part_of_the_data_is_the_validation_part_where_one_is_asked_for(tmp_path):
    rows = {
        name: "\n".join(f"word {row} {name},class {row % 2}" for row in range(12)) for name in ("train", "test", "dev")
    }
    (tmp_path / "texts").mkdir()
    for name, text in rows.items():
        (tmp_path / "texts" / f"{name}.csv").write_text(f"text,label\n{text}\n")
    student = {"model": "builtin:bert", "options": {"vocab_size": 50, "layers": 1, "hidden_size": 16, "heads": 2}}
    texts = {"data": {"name": f"csv:{tmp_path / 'texts'}"}, "limit": None, "views": {}, "student": student}
    for name, change, expected in (
        ("ignored", {"selection": "last"}, None),
        ("recognised", {}, 12),
        (
            "named",
            {"selection": "last", "data": {**texts["data"], "splits": {k: f"{v}.csv" for k, v in SPLITS.items()}}},
            12,
        ),
    ):
        result = train(
            selecting(tmp_path, **{**texts, "epochs": 1, "optimizer": {"name": "sgd", "learning_rate": 0.1}, **change}),
            tmp_path / name,
        )
        assert result.validation_samples == expected, name


SPLITS = {"train": "train", "test": "test", "validation": "dev"}
