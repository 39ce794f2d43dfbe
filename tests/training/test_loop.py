import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tpkd.config.loading import ConfigError
from tpkd.data.order import choose_views
from tpkd.errors import InputError
from tpkd.models import student as student_module
from tpkd.objectives import names
from tpkd.objectives.kernels import cpu
from tpkd.training.checkpoint import Checkpoints
from tpkd.training.directory import read_result
from tpkd.training.loop import train
from tpkd.training.run import assemble, start_accelerator
from training.equality import assert_same_run, metrics_of
from training.tiny import make_config, online, with_cache

STEPS = 15  # 3 epochs of 150 samples in batches of 32


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A directory with a teacher and its cache."""
    directory = tmp_path_factory.mktemp("loop")
    with_cache(directory)
    return directory


class InterruptedRunError(Exception):
    pass


def interrupt_at(step):
    def on_step(report):
        if report.step == step:
            raise InterruptedRunError

    return on_step


@pytest.mark.parametrize("name", names())
def test_every_objective_trains_and_continues_bit_for_bit(shared, tmp_path, name):
    settings = {"layer_features": "own-objective"} if name == "dto-kd" else {}
    student = {"model": "builtin:mlp", "options": {"input_size": 64, "hidden": [16], "dropout": 0.2}, "layers": [1]}
    config = make_config(shared, objective={"name": name, "settings": settings}, student=student)
    train(config, tmp_path / "whole")
    for step in (6, 9):
        with pytest.raises(InterruptedRunError):
            train(config, tmp_path / "parts", on_step=interrupt_at(step))
    train(config, tmp_path / "parts", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    log = (tmp_path / "parts" / "run.log").read_text()
    assert "continued from step 4" in log
    assert "continued from step 8" in log
    losses = [line["loss"] for line in metrics_of(tmp_path / "whole") if line["kind"] == "epoch"]
    assert losses[-1] < losses[0]


def test_adam_with_its_schedule_continues_bit_for_bit(shared, tmp_path):
    changes = {
        "optimizer": {"name": "adam-weight-decay", "learning_rate": 0.01},
        "schedule": {"name": "warmup-linear", "warmup": 5},
        "clip_norm": 1.0,
    }
    config = make_config(shared, **changes)
    train(config, tmp_path / "whole")
    with pytest.raises(InterruptedRunError):
        train(config, tmp_path / "parts", on_step=interrupt_at(11))
    train(config, tmp_path / "parts")
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    rates = {line["step"]: line["learning_rate"] for line in metrics_of(tmp_path / "whole") if line["kind"] == "train"}
    assert rates[3] == pytest.approx(0.01 * 2 / 5)
    assert rates[15] == pytest.approx(0.01 * (1 - 14 / 15))


@pytest.mark.parametrize(
    ("optimizer", "schedule", "rates"),
    [
        ({"name": "adamw"}, {"name": "cosine", "warmup": 0.2}, {3: 2 / 3, 9: (1 + np.cos(np.pi * 5 / 12)) / 2}),
        ({"name": "adamw", "layer_decay": 0.5}, {"name": "linear", "warmup": 3}, {3: 2 / 3, 9: 7 / 12}),
        ({"name": "sgd", "layer_decay": 0.5, "nesterov": True}, {"name": "step", "milestones": [1]}, {3: 1, 9: 0.1}),
        ({"name": "adam-weight-decay", "layer_decay": 0.5}, {"name": "constant", "warmup": 4}, {3: 0.5, 9: 1}),
    ],
    ids=lambda value: value.get("name"),
)
def test_optimisers_and_schedules_continue_bit_for_bit(shared, tmp_path, optimizer, schedule, rates):
    config = make_config(shared, optimizer={**optimizer, "learning_rate": 0.01}, schedule=schedule)
    train(config, tmp_path / "whole")
    with pytest.raises(InterruptedRunError):
        train(config, tmp_path / "parts", on_step=interrupt_at(6))
    train(config, tmp_path / "parts")
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    found = {line["step"]: line["learning_rate"] for line in metrics_of(tmp_path / "whole") if line["kind"] == "train"}
    assert {step: found[step] for step in rates} == pytest.approx({step: 0.01 * rate for step, rate in rates.items()})
    saved = Checkpoints(tmp_path / "whole" / "checkpoints", keep=2).load().values["optimizer"]["param_groups"]
    scales = {group.get("lr_scale") for group in saved}
    assert scales == ({0.5, 1.0} if "layer_decay" in optimizer else {None})
    for group in saved:
        assert group["lr"] == found[STEPS] * group.get("lr_scale", 1.0)


def test_layers_that_cannot_be_told_apart_are_refused(shared, tmp_path):
    student = {"model": "builtin:mlp", "options": {"input_size": 64, "hidden": []}, "layers": [0]}
    optimizer = {"name": "sgd", "learning_rate": 0.1, "layer_decay": 0.5}
    with pytest.raises(ConfigError, match=r"optimizer\.layer_decay: expected a network whose layers are in a list"):
        train(make_config(shared, student=student, optimizer=optimizer), tmp_path / "run")


def test_a_warm_up_that_never_ends_is_refused(shared, tmp_path):
    with pytest.raises(ConfigError, match=r"schedule\.warmup: expected fewer steps than the 15 of the run, found 15"):
        train(make_config(shared, schedule={"name": "linear", "warmup": 15}), tmp_path / "run")


def test_the_number_of_workers_changes_nothing(shared, tmp_path):
    for workers in (0, 2, 4):
        train(make_config(shared, workers=workers, epochs=2), tmp_path / str(workers))
    assert_same_run(tmp_path / "0", tmp_path / "2")
    assert_same_run(tmp_path / "0", tmp_path / "4")


def test_a_run_may_continue_with_other_workers_and_intervals(shared, tmp_path):
    train(make_config(shared), tmp_path / "whole")
    with pytest.raises(InterruptedRunError):
        train(make_config(shared), tmp_path / "parts", on_step=interrupt_at(6))
    train(make_config(shared, workers=2, checkpoints={"every": 7, "keep": 2}), tmp_path / "parts")
    assert metrics_of(tmp_path / "whole") == metrics_of(tmp_path / "parts")
    assert read_result(tmp_path / "whole").student_fingerprint == read_result(tmp_path / "parts").student_fingerprint


@pytest.mark.parametrize(
    "change", [{"seed": 43}, {"batch_size": 16}, {"optimizer": {"name": "sgd", "learning_rate": 0.2}}]
)
def test_two_runs_that_differ_do_differ(shared, tmp_path, change):
    first = train(make_config(shared), tmp_path / "a")
    second = train(make_config(shared, **change), tmp_path / "b")
    assert first.student_fingerprint != second.student_fingerprint


def test_a_finished_run_is_not_run_again(shared, tmp_path):
    config = make_config(shared)
    result = train(config, tmp_path / "run")
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.name != ".lock"}
    assert train(config, tmp_path / "run", on_step=interrupt_at(1)) == result
    assert train(config, tmp_path / "run", resume=True) == result
    assert files == {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.name != ".lock"}


def test_the_directory_of_another_run_is_refused_with_the_keys_that_differ(shared, tmp_path):
    train(make_config(shared), tmp_path / "run")
    with pytest.raises(InputError, match=r"run: holds a run of another configuration: epochs: expected 3, found 2$"):
        train(make_config(shared, epochs=2), tmp_path / "run")
    with pytest.raises(InputError, match=r"objective\.name: expected 'tpkd', found 'ce'; seed: expected 42, found 7"):
        train(make_config(shared, objective="ce", seed=7), tmp_path / "run")


def test_a_mistake_does_not_keep_the_directory_from_the_corrected_run(shared, tmp_path):
    with pytest.raises(InputError, match="did you mean builtin:mlp"):
        train(make_config(shared, student={"model": "builtin:mpl"}), tmp_path / "run")
    with pytest.raises(InputError, match=r"objective: name: expected one of .*, got 'tpdk'; did you mean tpkd"):
        train(make_config(shared, objective="tpdk", data={"name": "nowhere"}), tmp_path / "run")
    train(make_config(shared), tmp_path / "run")
    train(make_config(shared), tmp_path / "fresh")
    assert_same_run(tmp_path / "run", tmp_path / "fresh")


def files_in(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_run_without_a_checkpoint_gives_way_and_is_kept_aside(shared, tmp_path):
    directory, left = tmp_path / "run", {}
    for number, seed in enumerate((1, 2), start=1):
        with pytest.raises(InterruptedRunError):
            train(make_config(shared, seed=seed), directory, on_step=interrupt_at(3))
        own = {name: data for name, data in files_in(directory).items() if not name.startswith((".", "abandoned-"))}
        assert {"config.yaml", "metrics.jsonl", "run.log"} <= own.keys()
        left |= {f"abandoned-{number}/{name}": data for name, data in own.items()}
    train(make_config(shared), directory)
    assert left.items() <= files_in(directory).items()
    assert "without a checkpoint, was moved to abandoned-2" in (directory / "run.log").read_text()
    train(make_config(shared), tmp_path / "fresh")
    assert_same_run(directory, tmp_path / "fresh")


def test_what_no_run_has_written_stays_where_it_is(shared, tmp_path):
    """Notes, and other runs that are finished or just being written."""
    directory = tmp_path / "run"
    with pytest.raises(InterruptedRunError):
        train(make_config(shared, seed=1), directory, on_step=interrupt_at(3))
    train(make_config(shared, seed=2), directory / "seed-2")
    (directory / "notes.txt").write_text("about seed 1")
    (directory / "seed-2" / ".result.json.x.partial").write_text("being written")
    (directory / "snapshots").mkdir()
    (directory / "snapshots" / ".left.partial").write_text("by a run that was killed")
    others = {name: data for name, data in files_in(directory).items() if name.startswith(("seed-2/", "notes"))}
    train(make_config(shared), directory)
    assert others.items() <= files_in(directory).items()
    assert not list((directory / "abandoned-1").rglob(".left.partial"))
    assert {path.name for path in (directory / "abandoned-1").iterdir()} >= {"config.yaml", "metrics.jsonl", "run.log"}
    assert not (directory / "abandoned-1" / "notes.txt").exists()


def test_a_run_without_a_checkpoint_starts_anew_in_its_place(shared, tmp_path):
    for _ in range(2):
        with pytest.raises(InterruptedRunError):
            train(make_config(shared), tmp_path / "run", on_step=interrupt_at(3))
    train(make_config(shared), tmp_path / "run")
    train(make_config(shared), tmp_path / "fresh")
    assert_same_run(tmp_path / "run", tmp_path / "fresh")
    assert not list((tmp_path / "run").glob("abandoned-*"))


def test_a_run_that_continues_elsewhere_says_what_changed(shared, tmp_path, monkeypatch):
    config = make_config(shared, checkpoints={"every": 2})
    for step in (3, 5):
        with pytest.raises(InterruptedRunError):
            train(config, tmp_path / "run", on_step=interrupt_at(step))
    assert "continued from step 2\n" in (tmp_path / "run" / "run.log").read_text()
    had_kernel = cpu.has_kernel()
    monkeypatch.setattr(cpu, "_kernel", None if had_kernel else object())
    train(config, tmp_path / "run")
    change = "yes -> no" if had_kernel else "no -> yes"
    told = f"continued from step 4; the last bits may differ from here on: libraries.tpkd kernel {change}\n"
    assert told in (tmp_path / "run" / "run.log").read_text()


def test_a_run_continues_without_knowing_where_it_was_before(shared, tmp_path):
    with pytest.raises(InterruptedRunError):
        train(make_config(shared, checkpoints={"every": 2}), tmp_path / "run", on_step=interrupt_at(3))
    (tmp_path / "run" / "environment.json").write_text("{")
    train(make_config(shared, checkpoints={"every": 2}), tmp_path / "run")
    assert "continued from step 2; the last bits may differ" in (tmp_path / "run" / "run.log").read_text()


def test_resume_leaves_a_run_without_a_checkpoint_where_it_is(shared, tmp_path):
    with pytest.raises(InterruptedRunError):
        train(make_config(shared, seed=1), tmp_path / "run", on_step=interrupt_at(3))
    before = files_in(tmp_path / "run")
    with pytest.raises(InputError, match="expected a checkpoint to continue from, found none"):
        train(make_config(shared, seed=2), tmp_path / "run", resume=True)
    assert files_in(tmp_path / "run") == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "tpdk"}, "objective: name: expected one of .*; did you mean tpkd"),
        ({"objective": {"name": "kd", "settings": {"temprature": 4}}}, "objective: settings: .* got temprature"),
        ({"objective": {"name": "kd", "settings": {"temperature": "hot"}}}, r"objective\.settings: .*'hot'"),
        ({"data": {"name": "digit"}}, "data: data set: .*; did you mean digits"),
        ({"student": {"model": "builtin:mpl"}}, "student: model .*; did you mean builtin:mlp"),
        ({"teacher": {"model": "builtin:resnet21"}}, "teacher: model .*; did you mean builtin:resnet"),
    ],
)
def test_names_come_before_what_is_wrong_with_the_directory(shared, tmp_path, changes, message):
    (tmp_path / "notes.txt").write_text("precious")
    with pytest.raises(ConfigError, match=message):
        train(make_config(shared, **{"student": {"model": "builtin:mlp"}} | changes), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_directory_of_something_else_is_refused(shared, tmp_path):
    (tmp_path / "notes.txt").write_text("precious")
    with pytest.raises(InputError, match=r"expected an empty directory or a run, found notes\.txt"):
        train(make_config(shared), tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.name != ".lock"] == ["notes.txt"]


def test_resume_refuses_to_start_from_nothing(shared, tmp_path):
    with pytest.raises(InputError, match="expected a checkpoint to continue from, found none"):
        train(make_config(shared), tmp_path / "run", resume=True)


def test_a_second_run_in_the_same_directory_is_refused(shared, tmp_path):
    def second(report):
        with pytest.raises(InputError, match=r"another run \(process \d+\) is writing here"):
            train(make_config(shared), tmp_path / "run")
        raise InterruptedRunError

    with pytest.raises(InterruptedRunError):
        train(make_config(shared), tmp_path / "run", on_step=second)


def test_a_run_directory_holds_what_the_design_says(shared, tmp_path):
    config = make_config(shared, snapshots=[1, 3], tensorboard=True)
    result = train(config, tmp_path / "run")
    found = {str(path.relative_to(tmp_path / "run")) for path in (tmp_path / "run").rglob("*") if path.is_file()}
    events = {name for name in found if name.startswith("tensorboard/")}
    assert len(events) == 1
    checkpoint = {f"{name}.safetensors" for name in ("model", "optimizer", "objective", "random")} | {
        "state.json",
        "state.sha256",
    }
    assert found - events == {
        *(".lock", "config.yaml", "environment.json", "metrics.jsonl", "run.log", "result.json"),
        *("student.safetensors", "test-logits.safetensors"),
        *("snapshots/epoch-001.safetensors", "snapshots/epoch-003.safetensors"),
        *(f"snapshots/epoch-{epoch:03d}/step-{5 * epoch:06d}/{name}" for epoch in (1, 3) for name in checkpoint),
        *(f"checkpoints/step-{step:06d}/{name}" for step in (12, 15) for name in checkpoint),
    }
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == result.to_dict()
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["libraries"]["torch"] == torch.__version__
    assert "/" not in json.dumps(environment)


def test_snapshots_are_the_student_when_the_last_sample_of_the_epoch_was_seen(shared, tmp_path):
    config = make_config(shared, snapshots=[1, 3])
    train(config, tmp_path / "run")
    final = load_file(tmp_path / "run" / "student.safetensors")
    last = load_file(tmp_path / "run" / "snapshots" / "epoch-003.safetensors")
    assert all(torch.equal(final[name], last[name]) for name in final)
    # 150 samples in batches of 32: the fifth step sees the last sample of the first epoch.
    with pytest.raises(InterruptedRunError):
        train(make_config(shared, checkpoints={"every": 1}), tmp_path / "other", on_step=interrupt_at(5))
    states = Checkpoints(tmp_path / "other" / "checkpoints", keep=2).load().groups["model"]
    first = load_file(tmp_path / "run" / "snapshots" / "epoch-001.safetensors")
    assert all(torch.equal(states[name], first[name]) for name in first)


def test_batches_cross_epochs_and_the_run_ends_after_epochs_times_samples(shared):
    config = make_config(shared)
    run = assemble(config, start_accelerator(config), shared)
    assert run.num_steps == STEPS
    assert [run.samples_after(step) for step in (1, 14, 15)] == [32, 448, 450]
    assert [list(run.epochs_ended(step)) for step in (4, 5, 9, 10, 14, 15)] == [[], [1], [], [2], [], [3]]
    assert [run.epoch_of(step) for step in (1, 5, 6, 10, 11, 15)] == [1, 1, 2, 2, 3, 3]
    seen = torch.cat([run.batches[number].sample_ids for number in range(STEPS)])
    for epoch in range(3):
        assert (
            seen[150 * epoch : 150 * (epoch + 1)].sort().values.equal(torch.from_numpy(run.dataset.ids).sort().values)
        )
    views = torch.cat([run.batches[number].view_ids for number in range(STEPS)])
    epochs = np.repeat([1, 2, 3], 150)
    assert views.tolist() == choose_views(42, epochs, seen.numpy(), 8).tolist()


def test_the_papers_text_run_has_1125_iterations():
    assert -(-4 * 18_000 // 64) == 1125  # what TrainingBatches does; 1,128 if every epoch started a new batch


def test_the_result_is_the_last_epoch_on_the_test_split(shared, tmp_path):
    config = make_config(shared, evaluation={"limit": 100, "every": 1, "batch_size": 33})
    result = train(config, tmp_path / "run")
    evaluations = [line for line in metrics_of(tmp_path / "run") if line["kind"] == "evaluation"]
    assert [line["epoch"] for line in evaluations] == [1, 2, 3]
    assert (result.accuracy, result.label_loss) == (evaluations[-1]["accuracy"], evaluations[-1]["label_loss"])
    saved = load_file(tmp_path / "run" / "test-logits.safetensors")
    assert saved["logits"].shape == (100, 10)
    right = (saved["logits"].argmax(-1) == saved["labels"]).double().mean().item()
    assert result.accuracy == pytest.approx(right)
    loss = torch.nn.functional.cross_entropy(saved["logits"], saved["labels"]).item()
    assert result.label_loss == pytest.approx(loss, rel=1e-5)
    options = {"limit": 100, "batch_size": 33}
    without = train(make_config(shared, evaluation=options), tmp_path / "without")
    assert without.student_fingerprint == result.student_fingerprint


def test_the_monitor_looks_at_every_nth_batch_whatever_the_objective(shared, tmp_path):
    train(make_config(shared, objective="ce"), tmp_path / "run")
    seen = [line for line in metrics_of(tmp_path / "run") if line["kind"] == "monitor"]
    assert [line["step"] for line in seen] == [5, 10, 15]
    for line in seen:
        assert 0 <= line["blocked_share"] <= 1
        assert line["conditional_loss"] > 0
        assert 0 < line["retention"] <= 1
        assert line["compensation"] > 0
    train(make_config(shared, objective="ce", monitor_every=0), tmp_path / "blind")
    assert not [line for line in metrics_of(tmp_path / "blind") if line["kind"] == "monitor"]
    first, second = (read_result(tmp_path / name).student_fingerprint for name in ("run", "blind"))
    assert first == second


def test_selection_rates_are_logged_for_every_epoch(shared, tmp_path):
    train(make_config(shared, objective="dp-u"), tmp_path / "run")
    epochs = [line for line in metrics_of(tmp_path / "run") if line["kind"] == "epoch"]
    assert [line["epoch"] for line in epochs] == [1, 2, 3]
    rates = [value for line in epochs for name, value in line.items() if "rate" in name or "share" in name]
    assert len(rates) == 3
    assert all(0 <= rate <= 1 for rate in rates)


def test_a_loss_that_is_not_finite_leaves_the_last_checkpoint_and_says_so(shared, tmp_path):
    from tpkd.training.step import NonFiniteError

    config = make_config(shared, optimizer={"name": "sgd", "learning_rate": 1e18}, objective="ce")
    with pytest.raises(NonFiniteError, match=r"step \d+: the (loss|gradient) is not finite"):
        train(config, tmp_path / "run")
    assert "stopped: step" in (tmp_path / "run" / "run.log").read_text()
    assert read_result(tmp_path / "run") is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"teacher": None, "student": {"model": "builtin:mlp"}}, "teacher: missing, and objective 'tpkd' learns from"),
        ({"objective": "tpk"}, "objective: name: expected one of ce, kd"),
        ({"objective": {"name": "kd", "settings": {"t": 4}}}, r"objective: settings: .* expected some of temperature"),
        ({"objective": {"name": "tpkd", "settings": {"beta": -1}}}, "objective: beta"),
        ({"data": {"name": "digit"}}, "data: data set: expected one of digits"),
        ({"student": {"model": "builtin:mpl"}}, "student: model 'builtin:mpl': unknown, expected builtin:mlp"),
        ({"student": {"model": "builtin:mlp", "options": {"width": 3}}}, "student: width: unknown option"),
        (
            {"student": {"model": "builtin:mlp", "weights": "no.safetensors"}},
            r"student: no\.safetensors: cannot be read",
        ),
        ({"student": {"model": "builtin:mlp", "layers": [9]}}, "student: layers: expected layers 0 to 1, got 9"),
        (
            {"student": {"model": "builtin:mlp", "options": {"input_size": 10}}},
            r"student\.model: builtin:mlp does not fit the inputs of digits: .* expected 10 numbers .* set options",
        ),
        (
            {"student": {"model": "builtin:mlp", "options": {"input_size": 10}, "head": "probe"}},
            r"student\.model: builtin:mlp does not fit the inputs of digits",
        ),
        (
            {"student": {"model": "builtin:resnet8"}},
            r"student\.model: builtin:resnet8 does not fit the inputs of digits: .* expected .* 3 channels",
        ),
        ({"student": {"model": "builtin:bert"}}, r"student\.model: builtin:bert does not fit the inputs of digits"),
        (
            {
                "teacher": {"model": "builtin:mlp", "options": {"input_size": 10}, "untrained": True},
                "student": {"model": "builtin:mlp"},
            },
            r"teacher\.model: builtin:mlp does not fit the inputs of digits: inputs: expected 10 numbers",
        ),
        ({"precision": "fp16"}, "precision: fp16 needs an accelerator, expected fp32 or bf16"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_key_before_anything_is_computed(shared, tmp_path, changes, message):
    config = make_config(shared, **changes)
    with pytest.raises(ConfigError, match=message):
        train(config, tmp_path / "run")


@pytest.fixture
def texts(tmp_path):
    """Texts of two classes, the longest of seven words."""
    for split in ("train", "test"):
        rows = ({"text": "word " * (1 + row % 7), "label": f"class {row % 2}"} for row in range(16))
        (tmp_path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    options = {"vocab_size": 50, "layers": 1, "hidden_size": 16, "heads": 2}
    network = {"model": "builtin:bert", "options": options}
    teacher = {**network, "untrained": True}
    return {"data": {"name": f"jsonl:{tmp_path}"}, "limit": None, "views": {}, "student": network, "teacher": teacher}


@pytest.mark.parametrize("name", ["tpkd", "dkd", "compensation-only"])
def test_an_objective_that_two_classes_cannot_have_is_refused_before_the_first_step(shared, tmp_path, texts, name):
    with pytest.raises(ConfigError, match="objective: student_logits: expected at least 3 classes, got 2"):
        train(make_config(shared, **texts, objective=name), tmp_path / "run")
    assert not (tmp_path / "run" / "run.log").exists()
    assert train(make_config(shared, **texts, objective="kd"), tmp_path / "run").steps == 2


def test_a_text_too_long_for_its_network_is_found_before_the_first_step(shared, tmp_path, texts, monkeypatch):
    """A network of transformers may have fewer positions than `max_length`, which counts only where texts are long."""
    build = student_module.build_model

    def short(*arguments, **settings):
        model = build(*arguments, **settings)
        model.max_positions = 8
        return model

    monkeypatch.setattr(student_module, "build_model", short)
    changes = texts | {"teacher": None, "objective": "ce", "text": {"padding": "longest"}}
    with pytest.raises(ConfigError, match=r"student\.model: builtin:bert does not fit .*at most 8 tokens, got 9"):
        train(make_config(shared, **changes), tmp_path / "run")


def test_layer_features_need_layers(shared, tmp_path):
    config = make_config(
        shared,
        objective={"name": "dto-kd", "settings": {"layer_features": "own-objective"}},
        student={"model": "builtin:mlp", "options": {"input_size": 64, "hidden": [16]}},
    )
    with pytest.raises(ConfigError, match=r"student\.layers: missing, and objective 'dto-kd' compares layers"):
        train(config, tmp_path / "run")


def test_a_checkpoint_of_another_teacher_is_refused(shared, tmp_path):
    config = online(make_config(shared))
    with pytest.raises(InterruptedRunError):
        train(config, tmp_path / "run", on_step=interrupt_at(6))
    weights = Path(config.teacher.weights)
    saved = weights.read_bytes()
    try:
        tensors = load_file(weights)
        tensors["fc.bias"] += 1
        from safetensors.torch import save_file

        save_file(tensors, weights)
        with pytest.raises(InputError, match="checkpoint of step 4: teacher: expected"):
            train(config, tmp_path / "run")
    finally:
        weights.write_bytes(saved)


def test_a_probe_is_fitted_once_and_found_again(shared, tmp_path):
    student = {"model": "builtin:mlp", "options": {"input_size": 64, "hidden": [64]}, "head": "probe"}
    config = make_config(shared, student=student, objective="ce")
    train(config, tmp_path / "whole")
    with pytest.raises(InterruptedRunError):
        train(config, tmp_path / "parts", on_step=interrupt_at(6))
    probe = (tmp_path / "parts" / "probe.safetensors").read_bytes()
    train(config, tmp_path / "parts")
    assert (tmp_path / "parts" / "probe.safetensors").read_bytes() == probe
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    first = metrics_of(tmp_path / "whole")[0]["loss"]
    random_start = train(make_config(shared, student=student | {"head": "random"}, objective="ce"), tmp_path / "random")
    assert random_start.epochs == 3
    assert first < metrics_of(tmp_path / "random")[0]["loss"]


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("step", [6, STEPS])
def test_a_run_whose_directory_is_moved_ends_and_makes_no_other(shared, tmp_path, step, replaced):
    """In the middle, and when there is only the result left to write."""

    def move(report):
        if report.step == step:
            (tmp_path / "run").rename(tmp_path / "elsewhere")
            if replaced:
                (tmp_path / "run").mkdir()

    with pytest.raises(InputError, match=r"run: moved, removed or replaced .*; put it back and the same command"):
        train(make_config(shared), tmp_path / "run", on_step=move)
    assert (tmp_path / "run").exists() == replaced
    assert not replaced or not list((tmp_path / "run").iterdir())
    assert "stopped: " in (tmp_path / "elsewhere" / "run.log").read_text().splitlines()[-1]
    if replaced:
        (tmp_path / "run").rmdir()
    (tmp_path / "elsewhere").rename(tmp_path / "run")
    train(make_config(shared), tmp_path / "run")
    train(make_config(shared), tmp_path / "whole")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_student_that_answers_with_nan_has_no_result(shared, tmp_path, monkeypatch):
    from tpkd.training import evaluation
    from tpkd.training.step import NonFiniteError

    real = evaluation.load_batches

    def with_a_hole(*arguments, **options):
        for number, batch in enumerate(real(*arguments, **options)):
            if number == 0:
                batch.inputs[3] = torch.nan
            yield batch

    monkeypatch.setattr(evaluation, "load_batches", with_a_hole)
    with pytest.raises(NonFiniteError, match=r"evaluation after step 15: logits are not finite for samples \d+$"):
        train(make_config(shared), tmp_path / "run")
    assert read_result(tmp_path / "run") is None


def test_steps_that_are_all_left_out_end_the_run(shared, tmp_path, monkeypatch):
    """Mixed precision leaves out a step that overflows and scales down; without end, nothing is learned."""
    from dataclasses import replace

    from tpkd.training import loop
    from tpkd.training.step import NonFiniteError, take_step

    monkeypatch.setattr(loop, "MAX_SKIPPED", 8, raising=False)
    monkeypatch.setattr(
        loop, "take_step", lambda *given, **options: replace(take_step(*given, **options), skipped=True)
    )
    with pytest.raises(NonFiniteError, match="step 9: gradients have overflowed 9 times in a row"):
        train(make_config(shared), tmp_path / "run")


def test_what_cannot_be_swept_away_is_named(shared, tmp_path, monkeypatch):
    import shutil

    with pytest.raises(InterruptedRunError):
        train(make_config(shared), tmp_path / "run", on_step=interrupt_at(6))
    (tmp_path / "run" / "checkpoints" / ".step-000008.partial").mkdir()

    def refused(path, **options):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", refused)
    with pytest.raises(InputError, match=r"checkpoints/\.step-000008\.partial: cannot be removed: Permission denied"):
        train(make_config(shared), tmp_path / "run")
