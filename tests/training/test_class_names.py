"""Class names travel with everything a run writes, and are compared with everything it reads."""

import json
import shutil

import pytest
import torch

from tpkd.config.loading import ConfigError
from tpkd.data.configured import load_data
from tpkd.errors import InputError
from tpkd.teacher import caching
from tpkd.teacher.network import build_teacher, class_map
from tpkd.teacher.opening import given_test_logits
from tpkd.training.checkpoint import Checkpoints
from tpkd.training.directory import read_result
from tpkd.training.loop import train
from tpkd.training.run import assemble, start_accelerator
from training.named import NAMES, config_of, recorded_names, taught_by, write_images, write_weights

PERMUTED = ("dog", "cat", "horse")


@pytest.fixture
def place(tmp_path):
    write_images(tmp_path / "photos")
    return tmp_path


def build(config, directory):
    return assemble(config, start_accelerator(config), directory)


def test_everything_that_a_run_writes_carries_the_names(place):
    config = config_of(place, ["student.head=probe"])
    train(config)
    run = place / "runs" / "ce-42"
    files = sorted(path for path in run.rglob("*.safetensors") if path.name not in ("optimizer.safetensors",))
    files = [path for path in files if path.stem not in ("objective", "random")]
    assert {path.name for path in files} == {
        *("student.safetensors", "probe.safetensors", "test-logits.safetensors"),
        *("epoch-001.safetensors", "model.safetensors"),
    }
    assert {path.relative_to(run): recorded_names(path) for path in files} == {
        path.relative_to(run): NAMES for path in files
    }
    assert read_result(run).class_names == NAMES
    assert json.loads((run / "result.json").read_text())["class_names"] == list(NAMES)


def test_a_result_without_names_is_read_as_before(place):
    train(config_of(place))
    path = place / "runs" / "ce-42" / "result.json"
    result = json.loads(path.read_text())
    assert result.pop("class_names") == list(NAMES)
    path.write_text(json.dumps(result))
    assert read_result(path.parent).class_names is None


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (PERMUTED, r"class 0: expected 'cat' as in folder:\S+photos, found 'dog': the same names in another order"),
        (("cat", "dog", "cow"), r"class 2: expected 'horse' as in folder:\S+photos, found 'cow'"),
        ((*NAMES, "cow"), r"expected 3 classes as in folder:\S+photos, found 4"),
    ],
)
def test_a_teacher_of_other_classes_is_refused_with_a_way_out(place, names, problem):
    weights = write_weights(place / "t.safetensors", names, len(names))
    config = config_of(place, teacher=taught_by(weights), objective="tpkd")
    with pytest.raises(
        ConfigError, match=rf"^teacher: weights \S+t.safetensors: {problem}.*; teacher\.class_names: \S+"
    ):
        build(config, place)


def test_the_way_out_maps_a_teachers_classes_by_name(place):
    weights = write_weights(place / "t.safetensors", PERMUTED)
    config = config_of(place, teacher=taught_by(weights, class_names=str(weights)), objective="tpkd")
    dataset = load_data(config, "train")
    assert class_map(config, dataset).teacher_classes == (1, 0, 2)
    run = build(config, place)
    samples = run.batches[0]
    answered = run.teacher.answer(samples.inputs, samples.sample_ids, samples.view_ids).logits
    own = build_teacher(config, dataset).model(samples.inputs)
    assert torch.equal(answered, own[:, [1, 0, 2]])


def test_a_list_of_classes_that_contradicts_the_weights_is_refused(place):
    weights = write_weights(place / "t.safetensors", NAMES)
    (place / "names.txt").write_text("\n".join(PERMUTED))
    teacher = taught_by(weights, class_names=str(place / "names.txt"))
    with pytest.raises(ConfigError, match=r"names.txt: class 0: found 'dog', which is class 1 of \S+t.safetensors"):
        build(config_of(place, teacher=teacher, objective="tpkd"), place)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [("cat\n\ndog\nhorse\n", "line 2: expected a name, found an empty line"), ("cat\ndog\ncat\n", "two classes named")],
)
def test_a_list_of_classes_with_a_gap_is_refused(place, lines, problem):
    weights = write_weights(place / "t.safetensors", NAMES)
    (place / "names.txt").write_text(lines)
    teacher = taught_by(weights, class_names=str(place / "names.txt"))
    with pytest.raises(ConfigError, match=problem):
        build(config_of(place, teacher=teacher, objective="tpkd"), place)
    assert build_teacher(config_of(place, teacher=taught_by(weights)), _data(place)).model.class_names == NAMES


def _data(place):
    return load_data(config_of(place), "train")


def test_a_student_of_other_classes_is_refused_unless_its_head_is_new(place):
    weights = write_weights(place / "s.safetensors", PERMUTED)
    student = {"model": "builtin:mlp", "options": {"input_size": 75, "hidden": [8]}, "weights": str(weights)}
    with pytest.raises(
        ConfigError, match=r"^student: weights .*found 'dog': the same names in another order; .*random"
    ):
        build(config_of(place, student=student), place)
    build(config_of(place, student=student | {"head": "random"}), place)


def test_weights_without_names_are_accepted(place):
    weights = write_weights(place / "t.safetensors", None)
    model = build_teacher(config_of(place, teacher=taught_by(weights)), _data(place)).model
    assert model.class_names is None


def test_weights_with_damaged_names_are_refused_by_file(place):
    weights = write_weights(place / "t.safetensors", {"a": 1})
    with pytest.raises(ConfigError, match=r"t.safetensors: metadata class_names: expected a JSON list of names"):
        build(config_of(place, teacher=taught_by(weights), objective="tpkd"), place)


def test_a_probe_of_other_classes_is_refused(place):
    probe = place / "probe.safetensors"
    write_images(place / "others", ("ant", "bee", "fly"))
    elsewhere = {"name": f"folder:{place / 'others'}"}
    options = ["student.head=probe", f"student.probe_file={probe}"]
    build(config_of(place, options, data=elsewhere), place)
    with pytest.raises(ConfigError, match=r"probe.safetensors: class 0: expected 'cat' as in \S+photos, found 'ant'"):
        build(config_of(place, options), place)


def test_a_run_that_continues_on_other_classes_names_the_first(place):
    config = config_of(place)
    train(config)
    run = place / "runs" / "ce-42"
    (run / "result.json").unlink()
    for split in ("train", "test"):
        (place / "photos" / split / "dog").rename(place / "photos" / split / "cow")
    with pytest.raises(InputError, match=r"checkpoint of step 2: class 1: expected 'cow' as in \S+photos, found 'dog'"):
        train(config)


def test_a_checkpoint_without_names_continues(place, monkeypatch):
    config = config_of(place)
    save = Checkpoints.save

    def save_as_before(self, step, groups, values, **more):
        assert values["class_names"] == list(NAMES)
        save(self, step, groups, {key: value for key, value in values.items() if key != "class_names"})

    monkeypatch.setattr(Checkpoints, "save", save_as_before)
    first = train(config)
    (place / "runs" / "ce-42" / "result.json").unlink()
    assert train(config).student_fingerprint == first.student_fingerprint


def test_the_cache_of_a_run_knows_its_classes(place):
    weights = write_weights(place / "t.safetensors", NAMES)
    config = config_of(place, teacher=taught_by(weights, cache=str(place / "cache")), objective="tpkd")
    caching.build(config)
    manifest = json.loads((place / "cache" / "manifest.json").read_text())
    assert manifest["recipe"]["class_names"] == list(NAMES)
    shutil.rmtree(place / "photos")
    write_images(place / "photos", ("cat", "cow", "horse"))
    with pytest.raises(InputError, match=r"class_names\[1\]: expected 'cow', found 'dog'"):
        build(config_of(place, teacher={"cache": str(place / "cache")}, objective="tpkd"), place)


def test_test_logits_of_another_order_are_refused(place):
    from safetensors.torch import save_file

    weights = write_weights(place / "t.safetensors", None)
    config = config_of(place, teacher=taught_by(weights, cache=str(place / "cache")), objective="tpkd")
    path = place / "answers.safetensors"
    save_file({"logits": torch.zeros(6, 3)}, path, metadata={"class_names": json.dumps(PERMUTED)})
    config = config_of(place, teacher={"cache": "unused", "test_logits": str(path)}, objective="tpkd")
    with pytest.raises(ConfigError, match=r"teacher.test_logits: \S+: class 0: expected 'cat' as in \S+, found 'dog'"):
        given_test_logits(config, load_data(config, "test"))
