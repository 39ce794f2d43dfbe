import dataclasses
import shutil

import pytest
import torch

from tpkd.config.loading import ConfigError
from tpkd.data.views import DIGITS_VIEWS
from tpkd.errors import InputError
from tpkd.models.classifier import Classifier
from tpkd.models.registry import build_model
from tpkd.models.spec import ModelSpec
from tpkd.teacher import caching
from tpkd.teacher.cache.read import open_cache
from tpkd.teacher.teacher import OnlineTeacher
from tpkd.training.loop import train
from tpkd.training.run import assemble, start_accelerator
from tpkd.training.state import Progress, capture
from tpkd.training.step import take_step
from training.tiny import make_config, online, plain_config, with_cache


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("frozen")
    with_cache(directory)
    return directory


@pytest.fixture
def forwards(monkeypatch):
    """How many rows each network answered, by its fingerprint of width: the teacher's last layer is 24 wide."""
    rows = {"teacher": 0, "student": 0}
    outputs = Classifier.outputs

    def count(self, inputs, layers=()):
        rows["teacher" if self.feature_size == 24 else "student"] += len(inputs)
        return outputs(self, inputs, layers)

    monkeypatch.setattr(Classifier, "outputs", count)
    return rows


def test_a_build_runs_the_teacher_once_a_row_and_training_never(tmp_path, forwards):
    config = with_cache(tmp_path)
    # One sample to see whether it fits at all, and 150 to see whether the teacher knows anything.
    assert forwards == {"teacher": 150 * 8 + 150 + 1, "student": 150 + 1}
    forwards["teacher"] = forwards["student"] = 0
    train(config)
    assert forwards["teacher"] == 0
    assert forwards["student"] == 3 * 150 + 100 + 1


def test_a_cached_teacher_answers_as_the_teacher_does(directory):
    cached = with_cache(directory / "float32", ["teacher.cache_dtype=float32"])
    config = online(cached)
    runs = [assemble(each, start_accelerator(each), directory) for each in (cached, config)]
    samples = runs[0].batches[2]
    keys = (samples.inputs, samples.sample_ids, samples.view_ids)
    stored, computed = (run.teacher.answer(*keys, with_layers=True) for run in runs)
    assert all(run.teacher.answer(*keys).layer_features == () for run in runs)
    torch.testing.assert_close(stored.logits, computed.logits, rtol=0, atol=1e-5)
    torch.testing.assert_close(stored.layer_features[0], computed.layer_features[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["teacher.weights=OTHER"], "model_fingerprint"),
        (["limit=149"], "dataset_fingerprint"),
        (["views.pad=0", "views.flip=true"], r"preprocessing\.flip: expected True, found False; .*pad"),
        (["views.seed=1"], r"preprocessing\.seed: expected 1, found 0"),
        (["teacher.cache_dtype=float32"], "dtype: expected 'float32', found 'float16'"),
        (["teacher.layers=[1]"], "layer_1"),
        (["teacher.cache=NOWHERE"], "expected a cache, found no manifest"),
    ],
)
def test_a_cache_of_something_else_is_refused_by_name(directory, overrides, message):
    from safetensors.torch import save_file

    other = build_model(
        ModelSpec("builtin:mlp", num_classes=10, options={"input_size": 64, "hidden": [24, 24]}, seed=8)
    )
    save_file(other.state_dict(), directory / "other.safetensors")
    filled = [text.replace("OTHER", str(directory / "other.safetensors")) for text in overrides]
    config = make_config(directory, filled)
    with pytest.raises(InputError, match=rf"teacher\.cache: .*{message}"):
        assemble(config, start_accelerator(config), directory)


def test_a_class_map_of_another_order_is_refused(directory):
    names = directory / "names.txt"
    names.write_text("\n".join(str(digit) for digit in reversed(range(10))))
    config = make_config(directory, [f"teacher.class_names={names}"])
    with pytest.raises(InputError, match="class_map"):
        assemble(config, start_accelerator(config), directory)


def test_a_class_map_is_applied_alike_in_a_cache_and_at_every_step(tmp_path):
    names = tmp_path / "names.txt"
    names.write_text("\n".join(["nine", *map(str, range(9))]))
    options = [f"teacher.class_names={names}", "teacher.rename={nine: '9'}", "teacher.cache_dtype=float32"]
    cached = with_cache(tmp_path, options)
    plain = make_config(tmp_path, [])
    samples, logits = None, []
    for config in (cached, online(cached), online(plain)):
        run = assemble(config, start_accelerator(config), tmp_path)
        samples = run.batches[0]
        logits.append(run.teacher.answer(samples.inputs, samples.sample_ids, samples.view_ids).logits)
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=1e-5)
    # The teacher calls its first class nine: the student's 9 asks for it, and its 0 for the second.
    torch.testing.assert_close(logits[1], logits[2].roll(-1, -1), rtol=0, atol=1e-6)


def test_a_cache_without_a_network_is_taken_as_it_is_but_for_the_data(directory):
    data = plain_config(directory)
    data["teacher"] = {"cache": data["teacher"]["cache"], "layers": [2]}
    config = make_config(directory, teacher=data["teacher"])
    run = assemble(config, start_accelerator(config), directory)
    assert take_step(run, 1, run.batches[0]).loss > 0
    for changes, message in (
        ({"limit": 100}, "dataset_fingerprint"),
        ({"views": {"num_views": 8, "scale": 16}}, r"preprocessing\.pad: expected 0, found 1"),
    ):
        other = make_config(directory, **{"teacher": data["teacher"]} | changes)
        with pytest.raises(InputError, match=message):
            assemble(other, start_accelerator(other), directory)


def test_a_cache_that_misses_a_row_is_refused_before_the_first_step(tmp_path):
    config = with_cache(tmp_path, ["views.num_views=4"])
    wanted = make_config(tmp_path, ["views.num_views=8"])
    with pytest.raises(InputError, match=r"num_views: expected 8, found 4"):
        assemble(wanted, start_accelerator(wanted), tmp_path)
    shutil.rmtree(config.teacher.cache)
    with pytest.raises(InputError, match=r"teacher\.cache: .*found no manifest\.json; `tpkd cache build` writes it"):
        assemble(config, start_accelerator(config), tmp_path)


def test_a_teacher_that_sees_other_inputs_needs_a_cache(directory):
    views = DIGITS_VIEWS.to_dict() | {"std": [0.5]}
    views.pop("schema")
    config = online(make_config(directory))
    teacher = config.teacher.model_copy(update={"views": type(config.views)(**views)})
    changed = config.model_copy(update={"teacher": teacher})
    with pytest.raises(ConfigError, match=r"teacher\.cache: missing, and needed because the teacher sees other inputs"):
        assemble(changed, start_accelerator(changed), directory)


class TestATeacherThatAnswersAtEveryStep:
    @pytest.fixture
    def run(self, tmp_path):
        """A teacher with batch statistics and dropout, which must both stay asleep."""
        config = online(
            make_config(tmp_path, teacher=plain_config(tmp_path)["teacher"] | {"weights": None, "untrained": True})
        )
        run = assemble(config, start_accelerator(config), tmp_path)
        inner = build_model(
            ModelSpec("builtin:mlp", num_classes=10, options={"input_size": 64, "hidden": [24], "dropout": 0.5})
        )
        inner.layers[0] = torch.nn.Sequential(torch.nn.Linear(64, 24), torch.nn.BatchNorm1d(24))
        run.teacher = OnlineTeacher(inner)
        run.inner = inner
        return run

    def test_gets_no_gradient_and_keeps_its_statistics(self, run):
        before = {name: value.clone() for name, value in run.inner.state_dict().items()}
        run.module.train()
        take_step(run, 1, run.batches[0])
        assert not run.inner.training
        assert all(parameter.grad is None for parameter in run.inner.parameters())
        assert all(torch.equal(value, before[name]) for name, value in run.inner.state_dict().items())

    def test_is_neither_optimised_nor_saved_nor_part_of_the_module(self, run):
        take_step(run, 1, run.batches[0])
        teacher = {id(parameter) for parameter in run.inner.parameters()}
        optimised = {id(p) for group in run.optimizer.param_groups for p in group["params"]}
        assert not teacher & optimised
        assert not teacher & {id(parameter) for parameter in run.module.parameters()}
        groups, values = capture(run, Progress())
        assert groups["model"].keys() == run.student.state_dict().keys()
        assert values["teacher"] == run.teacher.fingerprint

    def test_answers_without_a_graph_and_the_same_twice(self, run):
        samples = run.batches[0]
        first, second = (run.teacher.answer(samples.inputs, samples.sample_ids, samples.view_ids) for _ in range(2))
        assert not first.logits.requires_grad
        assert torch.equal(first.logits, second.logits)


def test_the_start_of_the_student_is_the_same_from_a_cache(tmp_path):
    config = with_cache(tmp_path, ["objective=dp-s", f"initial.cache={tmp_path / 'initial'}"])
    caching.build(config, "initial")
    cached = train(config)
    computed = train(
        config.model_copy(update={"initial": dataclass_without_cache(config.initial)}), tmp_path / "online"
    )
    assert cached.initial_fingerprint != computed.initial_fingerprint  # a cache's, and a network's
    assert cached.accuracy == computed.accuracy
    assert cached.label_loss == pytest.approx(computed.label_loss, rel=1e-5)


def dataclass_without_cache(initial):
    return initial.model_copy(update={"cache": None})


def test_a_cache_of_another_start_is_refused(tmp_path):
    config = with_cache(tmp_path, ["objective=dp-u", f"initial.cache={tmp_path / 'initial'}"])
    caching.build(config, "initial")
    other = make_config(tmp_path, ["objective=dp-u", f"initial.cache={tmp_path / 'initial'}", "student.seed=1"])
    with pytest.raises(InputError, match=r"initial\.cache: .*model_fingerprint"):
        assemble(other, start_accelerator(other), tmp_path)


def test_a_truncated_cache_is_no_start(tmp_path):
    truncated = with_cache(tmp_path, ["teacher.top_k=3"]).teacher.cache
    asking = make_config(tmp_path, ["objective=dp-u", f"initial.cache={truncated}", "teacher.cache=null"])
    with pytest.raises(InputError, match=r"initial\.cache: .*; top_k: expected nothing, found 3$"):
        assemble(asking, start_accelerator(asking), tmp_path)


def test_a_start_stays_at_the_start(tmp_path):
    config = online(make_config(tmp_path, objective="dp-u"))
    run = assemble(config, start_accelerator(config), tmp_path)
    samples = dataclasses.replace(run.batches[0])
    before = run.initial.answer(samples.inputs, samples.sample_ids, samples.view_ids).logits
    assert torch.equal(before, run.student.eval()(samples.inputs))
    run.student.train()
    take_step(run, 1, samples)
    assert torch.equal(run.initial.answer(samples.inputs, samples.sample_ids, samples.view_ids).logits, before)
    assert not torch.equal(run.student.eval()(samples.inputs), before)


def test_a_cache_without_features_of_layers_serves_every_objective_that_asks_for_none(tmp_path):
    """Logits alone are a fraction of the bytes; a run is bound to what decides them."""
    whole = with_cache(tmp_path)
    slim = make_config(tmp_path, ["student.layers=[]", "teacher.layers=[]", f"teacher.cache={tmp_path / 'slim'}"])
    caching.build(slim)
    fingerprints, losses = [], []
    for cache in (whole.teacher.cache, slim.teacher.cache):
        config = make_config(tmp_path, teacher={"cache": cache, "layers": [2]})
        run = assemble(config, start_accelerator(config), tmp_path)
        fingerprints.append(run.teacher.fingerprint)
        losses.append(take_step(run, 1, run.batches[0]).loss)
    assert fingerprints[0] == fingerprints[1]
    assert losses[0] == losses[1]
    other = with_cache(
        tmp_path,
        [
            "teacher.options.hidden=[24, 24, 24]",
            "teacher.weights=null",
            "teacher.untrained=true",
            f"teacher.cache={tmp_path / 'other'}",
        ],
    )
    assert open_cache(other.teacher.cache).answers_sha256 != fingerprints[0]
    settings = {"name": "dto-kd", "settings": {"layer_features": "own-objective"}}
    asking = make_config(tmp_path, teacher={"cache": slim.teacher.cache, "layers": [2]}, objective=settings)
    with pytest.raises(
        InputError, match=r"teacher\.cache: no features of teacher\.layers in it, and objective 'dto-kd'"
    ):
        assemble(asking, start_accelerator(asking), tmp_path)
