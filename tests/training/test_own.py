"""Runs on data and networks of one's own: the same numbers as named ones, resumed bit for bit."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tpkd.config.loading import resolve_config
from tpkd.data import load_dataset
from tpkd.errors import InputError
from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec
from tpkd.models.weights import weights_fingerprint
from tpkd.student.loading import load_student
from tpkd.training import fit, train
from training.equality import assert_same_run, metrics_of

CLASSES = ("a", "b", "c", "d")


class Points:
    """Vectors in two parts with a rule to learn; ids continue from one part to the other, as those of files do."""

    def __init__(self, split):
        self.first, self.length = (0, 60) if split == "train" else (60, 20)
        self.rule = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return self.length

    def __getitem__(self, position):
        number = self.first + position
        noise = torch.randn(5, generator=torch.Generator().manual_seed(100 + number))
        return self.rule[:, number % 4] + noise, number % 4, number


def settings(directory, **changes):
    return {
        "output": str(directory / "run"),
        "objective": "ce",
        "optimizer": {"name": "sgd", "learning_rate": 0.1},
        "epochs": 3,
        "batch_size": 16,
        "micro_batch_size": 5,
        "checkpoints": {"every": 4},
        "log_every": 2,
        "tensorboard": False,
        "device": "cpu",
        **changes,
    }


def make_student(seed=0):
    """What the configuration `builtin:mlp` gives for these data."""
    return build_model(ModelSpec("builtin:mlp", 4, options={"input_size": 5}, seed=seed))


def make_teacher():
    linear = nn.Linear(5, 4)
    with torch.no_grad():
        linear.weight.copy_(3 * Points("train").rule.T)
        linear.bias.zero_()
    return linear


def run(config, **given):
    """A run on the points."""
    parts = {"train": Points("train"), "test": Points("test"), "class_names": CLASSES}
    return fit(config, **(parts | given))


class InterruptedRunError(Exception):
    pass


def interrupt(report):
    if report.step == 6:
        raise InterruptedRunError


def test_all_is_as_with_named_data_and_networks(tmp_path):
    for split in ("train", "test"):
        x, y, _ = zip(*(Points(split)[row] for row in range(len(Points(split)))), strict=True)
        np.savez(tmp_path / f"{split}.npz", features=torch.stack(x).numpy(), labels=list(y), class_names=CLASSES)
    save_file({f"fc.{name}": value for name, value in make_teacher().state_dict().items()}, tmp_path / "t.safetensors")
    config = settings(tmp_path, objective="tpkd")
    student = {"model": "builtin:mlp"}
    teacher = {"model": "builtin:mlp", "options": {"hidden": []}, "weights": str(tmp_path / "t.safetensors")}
    named = {**config, "data": {"name": f"vector:{tmp_path}"}, "student": student, "teacher": teacher}
    expected = train(resolve_config(named), tmp_path / "named")
    for place, given in {
        "data": {"config": config | {"student": student, "teacher": teacher}},
        "networks": {"config": config, "student": make_student(), "teacher": make_teacher()},
        "workers": {"config": config | {"workers": 2}, "student": make_student(), "teacher": make_teacher()},
    }.items():
        found = run(**given, directory=tmp_path / place)
        assert found.student_fingerprint == expected.student_fingerprint
        assert (found.accuracy, found.label_loss) == (expected.accuracy, expected.label_loss)
        assert metrics_of(tmp_path / place) == metrics_of(tmp_path / "named")


class Digits:
    def __init__(self, split):
        self.data = load_dataset("digits", split)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, position):
        return self.data.take([position])[0], self.data.labels[position], self.data.ids[position]


def test_images_are_seen_in_views(tmp_path):
    student = {"model": "builtin:mlp", "options": {"input_size": 64, "hidden": [8]}}
    config = settings(tmp_path, views={"num_views": 4, "pad": 1, "scale": 16}, student=student, epochs=1)
    expected = train(resolve_config({**config, "data": {"name": "digits"}}), tmp_path / "named")
    names = load_dataset("digits", "train").class_names
    found = fit(config, train=Digits("train"), test=Digits("test"), class_names=names)
    assert found.student_fingerprint == expected.student_fingerprint
    assert found.accuracy == expected.accuracy


def test_texts(tmp_path):
    rows = [(f"{('one', 'two')[number % 2]} {number}", number % 2, number) for number in range(16)]
    options = {"layers": 1, "hidden_size": 8, "heads": 1, "vocab_size": 50}
    student = {"model": "builtin:bert", "options": options}
    config = settings(tmp_path, student=student, text={"max_length": 8}, epochs=1)
    result = fit(config, train=rows, test=rows, class_names=["one", "two"])
    assert load_student(tmp_path / "run").predict(["one 7"]).labels[0] in result.class_names
    problem = r"^student: expected builtin:bert or .* found a Linear, for which there is no tokenizer"
    with pytest.raises(InputError, match=problem):
        fit(settings(tmp_path), train=rows, test=rows, class_names=["one", "two"], student=nn.Linear(2, 2))


def test_a_run_continues_bit_for_bit(tmp_path):
    config, teacher = settings(tmp_path, objective="tpkd"), make_teacher()
    run(config, student=make_student(), teacher=teacher, directory=tmp_path / "whole")
    with pytest.raises(InterruptedRunError):
        run(config, student=make_student(), teacher=teacher, directory=tmp_path / "parts", on_step=interrupt)
    student = make_student(seed=9)  # a checkpoint says how it goes on, not the network that is handed over
    run(config, student=student, teacher=teacher, directory=tmp_path / "parts", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    assert "continued from step 4" in (tmp_path / "parts/run.log").read_text()


def test_a_run_does_not_continue_on_other_data(tmp_path):
    with pytest.raises(InterruptedRunError):
        run(settings(tmp_path), student=make_student(), on_step=interrupt)
    others = [Points("train")[position] for position in range(59)]
    with pytest.raises(InputError, match="checkpoint of step 4: data: expected"):
        run(settings(tmp_path), student=make_student(), train=others)


def test_the_network_that_is_given_is_trained(tmp_path):
    student, start = make_student(), weights_fingerprint(make_student())
    result = run(settings(tmp_path), student=student)
    assert weights_fingerprint(student) == result.student_fingerprint != start
    saved = load_file(tmp_path / "run/student.safetensors")
    assert saved.keys() == student.state_dict().keys()  # no names of ours
    another = make_student(seed=5)
    assert run(settings(tmp_path), student=another) == result  # the run is finished: nothing is computed
    assert weights_fingerprint(another) == result.student_fingerprint
    with pytest.raises(InputError, match=r"'python' is a network that a program gives to tpkd\.training\.fit"):
        load_student(tmp_path / "run")


def test_a_finished_run_of_something_else_is_refused(tmp_path):
    config = settings(tmp_path, objective="kd")
    run(config, student=make_student(), teacher=make_teacher())
    others = [Points("train")[position] for position in range(59)]
    with pytest.raises(InputError, match="holds a finished run with other data; take another output"):
        run(config, student=make_student(), teacher=make_teacher(), train=others)
    with pytest.raises(InputError, match="holds a finished run with other teacher; take another output"):
        run(config, student=make_student(), teacher=nn.Linear(5, 4))
    with pytest.raises(InputError, match="holds a run of another configuration: epochs: expected 3, found 2"):
        run(config | {"epochs": 2}, student=make_student(), teacher=make_teacher())


def test_labels_may_be_left_out(tmp_path):
    bare = [(x, None, number) for x, _, number in map(Points("train").__getitem__, range(60))]
    config, teacher = settings(tmp_path, objective="kl-dist"), make_teacher()
    found = run(config | {"data": {"unlabelled": True}}, student=make_student(), teacher=teacher, train=bare)
    whole = run(config, student=make_student(), teacher=teacher, directory=tmp_path / "whole")
    assert found.student_fingerprint == whole.student_fingerprint


def test_a_validation_part_is_evaluated_and_may_choose_the_epoch(tmp_path):
    validation = [(x, y, number + 1000) for x, y, number in map(Points("test").__getitem__, range(12))]
    found = run(settings(tmp_path, selection="best-validation"), student=make_student(), validation=validation)
    assert found.validation_samples == 12
    held = run(settings(tmp_path, data={"validation": 0.2}), student=make_student(), directory=tmp_path / "held")
    assert held.validation_samples == 12  # a fifth of 60
    assert run(settings(tmp_path), student=make_student(), directory=tmp_path / "none").validation_samples is None


@pytest.mark.parametrize(
    ("config", "given", "message"),
    [
        ({"data": {"name": "digits"}}, {}, "data.name: expected python, because it is given, found 'digits'"),
        ({"data": {"columns": {"text": "a"}}}, {}, "data.columns: expected none beside a data set of your own"),
        ({"student": {"head": "random"}}, {}, "student.head: expected none beside a network of your own"),
        ({"teacher": {"cache": "c"}}, {"teacher": nn.Linear(5, 4)}, "teacher.cache: expected none beside a network"),
        (
            {},
            {"student": nn.Linear(5, 3)},
            r"student: expected logits of shape \(1, 4\), .*, found \(1, 3\)",
        ),
        ({}, {"student": nn.Linear(4, 4)}, r"student: does not fit its inputs, \(1, 5\): "),
        ({}, {"teacher": nn.Identity()}, r"teacher: expected logits of shape \(1, 4\)"),
        ({"objective": "kd"}, {}, "teacher: missing, and objective 'kd' learns from one"),
        (
            {"selection": "best-validation"},
            {},
            r"data: expected a validation part, found train, test; or validation: 0\.2",
        ),
        ({"teachers": [{"model": "builtin:mlp"}]}, {"teacher": nn.Linear(5, 4)}, "teachers"),
        (
            {"optimizer": {"name": "sgd", "learning_rate": 0.1, "layer_decay": 0.5}},
            {},
            r"optimizer\.layer_decay: student: expected a network of tpkd, timm or transformers",
        ),
        ({"objective": "dhkd"}, {"teacher": nn.Linear(5, 4)}, "student.model: objective 'dhkd' needs one linear head"),
        ({"student": {"model": "python"}}, {"student": None}, "student: model: 'python' is a network that a program"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_key(tmp_path, config, given, message):
    with pytest.raises(InputError, match=message):
        run(settings(tmp_path, **config), **({"student": make_student()} | given))


def test_a_teacher_that_is_the_student_is_refused(tmp_path):
    student = make_student()
    with pytest.raises(InputError, match=r"teacher: expected a network of its own, got one that shares"):
        run(settings(tmp_path), student=student, teacher=student)
