"""From a file and overrides to a configuration, and mistakes in one line that names the key."""

import os

import pytest
import yaml

from config.minimal import MINIMAL, refused
from tpkd.config.loading import ConfigError, config_yaml, expand_data, keyed, load_config, resolve_config
from tpkd.errors import InputError


@pytest.mark.parametrize(
    ("override", "read", "value"),
    [
        ("epochs=7", lambda config: config.epochs, 7),
        ("optimizer.learning_rate=1e-4", lambda config: config.optimizer.learning_rate, 1e-4),
        ("optimizer={name: adam-weight-decay, learning_rate: 0.1}", lambda config: config.optimizer.eps, 1e-6),
        ("student.options.hidden=[8, 8]", lambda config: config.student.options, {"hidden": [8, 8]}),
        ("objective=kd", lambda config: config.objective.name, "kd"),
        ("objective.settings.temperature=2", lambda config: config.objective.settings, {"temperature": 2}),
        ("teacher.cache=runs/cache", lambda config: config.teacher.cache, "runs/cache"),
        ("clip_norm=null", lambda config: config.clip_norm, None),
        ("output=a=b", lambda config: config.output, "a=b"),
        ("data.root=", lambda config: config.data.root, None),
    ],
)
def test_overrides(file, override, read, value):
    assert read(load_config(file, [override])) == value


def test_the_last_override_wins(file):
    assert load_config(file, ["epochs=7", "epochs=8"]).epochs == 8


@pytest.mark.parametrize(
    ("overrides", "read", "value"),
    [
        (("objective=kd", "objective.settings.temperature=9"), lambda c: c.objective.settings, {"temperature": 9}),
        (("objective.name=kd", "objective.settings.temperature=9"), lambda c: c.objective.name, "kd"),
        (("objective=kd", "objective.name=dkd"), lambda c: c.objective.name, "dkd"),
        (("optimizer={name: sgd, learning_rate: 1}", "optimizer.momentum=0"), lambda c: c.optimizer.momentum, 0),
        (("teacher={cache: a}", "teacher.cache=b"), lambda c: c.teacher.cache, "b"),
        (("methods={}", "methods.ce={epochs: 3}"), lambda c: c.epochs, 3),
        (("methods.ce={epochs: 3}", "methods.ce.epochs=4"), lambda c: c.epochs, 4),
        (("epochs=3", "snapshots=[3]"), lambda c: c.snapshots, (3,)),
    ],
)
def test_the_order_of_overrides_means_nothing(file, overrides, read, value):
    first, second = load_config(file, overrides), load_config(file, overrides[::-1])
    assert first == second
    assert read(first) == value


def test_the_order_of_keys_under_methods_means_nothing(file):
    own = ["objective.settings: {kd_weight: 2}", "objective.settings.temperature: 3"]
    for keys in (own, own[::-1]):
        file.write_text(MINIMAL + f"methods: {{kd: {{{', '.join(keys)}}}}}\n")
        assert load_config(file, ["objective=kd"]).objective.settings == {"kd_weight": 2, "temperature": 3}


def test_what_all_objectives_share_leaves_methods_out(file):
    file.write_text(MINIMAL + "methods: {ce: {epochs: 3}}\n")
    config = load_config(file, ["methods.ce.epochs=4"], methods=False)
    assert (config.epochs, config.methods) == (5, {"ce": {"epochs": 4}})


def test_settings_of_a_method_hold_for_that_method_and_yield_to_overrides(file):
    methods = "methods: {kd: {optimizer.weight_decay: 0.5, objective.settings: {temperature: 3, kd_weight: 2}}}\n"
    file.write_text(MINIMAL + methods)
    assert load_config(file).optimizer.weight_decay == 0
    chosen = load_config(file, ["objective=kd", "objective.settings.temperature=9"])
    assert chosen.optimizer.weight_decay == 0.5
    assert chosen.objective.settings == {"temperature": 9, "kd_weight": 2}
    assert load_config(file, ["objective.name=kd", "optimizer.weight_decay=0.1"]).optimizer.weight_decay == 0.1
    assert load_config(file, ["objective={name: kd, settings: {temperature: 1}}"]).objective.settings == {
        "temperature": 1
    }


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("epoch=7", ["epoch: unknown key, expected one of ", "batch_size", "did you mean epochs?"]),
        (
            "optimizer.lr=0.1",
            ["optimizer.lr: unknown key, expected one of layer_decay, learning_rate, momentum, name, nesterov"],
        ),
        ("student.modle=x", ["student.modle: unknown key", "did you mean model?"]),
        ("teacher={model: m, chache: c}", ["teacher.chache: unknown key", "did you mean cache?"]),
        ("epochs=0", ["epochs: Input should be greater than 0, found 0"]),
        ("epochs=many", ["epochs: Input should be a valid integer", "found 'many'"]),
        ("epochs=", ["epochs: Input should be a valid integer", "found None"]),
        (
            "optimizer.name=adam",
            ["optimizer.name: expected one of sgd, adamw, adam-weight-decay, found 'adam'; did you mean"],
        ),
        ("optimizer.learning_rate=.nan", ["optimizer.learning_rate: Input should be", "found nan"]),
        ("optimizer.momentum=1", ["optimizer.momentum: Input should be less than 1, found 1"]),
        ("seed=-1", ["seed: expected a seed from 0 to 4294967295, found -1"]),
        ("seed=4294967296", ["seed: expected a seed from 0 to 4294967295, found 4294967296"]),
        ("student.seed=99999999999999999999999", ["student.seed: expected a seed from 0 to 4294967295"]),
        ("teacher={model: m, seed: -1}", ["teacher.seed: expected a seed from 0 to 4294967295"]),
        ("views.seed=-1", ["views.seed: expected a seed"]),
        ("study.seed=-1", ["study.seed: expected a seed"]),
        ("precision=half", ["precision: expected one of fp32, fp16, bf16, found 'half'"]),
        ("student.head=linear", ["student.head: expected one of own, random, probe, found 'linear'"]),
        ("student.head=prob", ["student.head: expected one of own, random, probe, found 'prob'; did you mean probe?"]),
        ("student.head=3", ["student.head: expected one of own, random, probe, found 3"]),
        (
            "study.blocking.splits=[tran]",
            ["study.blocking.splits.0: expected one of train, test, found 'tran'; did you"],
        ),
        (
            "data.class_weights=balancd",
            ["data.class_weights: expected balanced, found 'balancd'; did you mean balanced?"],
        ),
        ("data.class_weights={a: -1}", ["data.class_weights.a: Input should be greater than or equal to 0, found -1"]),
        ("data=digits", ["data: expected keys and values, found 'digits'"]),
        ("snapshots=3", ["snapshots: expected a list, found 3"]),
        ("snapshots=[9]", ["snapshots: expected epochs up to 5, found 9"]),
        ("student.layers=[1]", ["teacher.layers: expected one for each of 1 student.layers, found 0"]),
        ("teacher={}", ["teacher: expected a model, a cache, or both"]),
        (
            "teacher={model: m, weights: w, untrained: true}",
            ["teacher: untrained: expected false beside weights"],
        ),
        (
            "teacher={cache: c, untrained: true}",
            ["teacher: untrained: expected false without a model: a cache is taken as it is"],
        ),
        (
            "teacher={model: m, weights: w, head: random}",
            ["teacher: head: expected own: random would put an untrained"],
        ),
        (
            "teacher={model: m, top_k: 8}",
            ["teacher: top_k: expected a cache beside it, found none: ", "set teacher.cache, or leave top_k out"],
        ),
        ("teacher={cache: c, top_k: 0}", ["teacher.top_k: ", "greater than 0, found 0"]),
        ("teacher={cache: c, views: {pad: 3}}", ["teacher.views.pad: expected 0 as in views, found 3"]),
        ("epochs", ["override 'epochs': expected key=value"]),
        ("=3", ["override '=3': expected key=value"]),
        ("epochs=[1", ["override 'epochs=[1'", "line 1"]),
        ("views=!!python/object/apply:os.system [id]", ["could not determine a constructor"]),
    ],
)
def test_a_mistake_is_one_line_with_the_key_and_what_is_allowed(file, override, parts):
    message = refused(file, [override])
    for part in parts:
        assert part in message
    if not override.startswith(("epochs=[", "=", "views=!!")) and "=" in override:
        assert message.startswith(f"{file}: ")


def test_a_run_that_is_cut_short_keeps_the_snapshots_it_reaches(file):
    file.write_text(MINIMAL + "snapshots: [2, 4, 5]\nmethods: {ce: {snapshots: [1, 3]}, kd: {epochs: 3}}\n")
    assert load_config(file, ["epochs=4", "objective=dkd"]).snapshots == (2, 4)
    assert load_config(file, ["epochs=2", "objective=ce"]).snapshots == (1,)
    assert load_config(file, ["epochs=1", "objective=dkd"]).snapshots == ()
    assert "snapshots: expected epochs up to 3, found 4" in refused(file, ["epochs=3", "snapshots=[4]"])
    # Without an override the file speaks for itself, and contradicts itself.
    assert "snapshots: expected epochs up to 3, found 4" in refused(file, ["objective=kd"])


def test_a_missing_key_is_named(file):
    file.write_text(MINIMAL.replace("epochs: 5", ""))
    assert refused(file) == f"{file}: epochs: missing"


def test_files_that_are_no_text_are_refused(file, tmp_path):
    file.write_bytes(b"\x80\x04\x95\xff\xfe")
    assert str(file) in refused(file)
    file.write_bytes(b"a: " + b"x" * (1 << 20))
    assert "expected at most" in refused(file)
    assert "cannot be read" in refused(tmp_path / "missing.yaml")
    assert "expected a regular file, found a directory" in refused(tmp_path)


def test_a_configuration_survives_its_own_file(file, tmp_path):
    config = load_config(file, ["views={num_views: 8, mean: [0.1, 0.2, 0.3]}", "snapshots=[1, 5]"])
    path = tmp_path / "resolved.yaml"
    path.write_text(config_yaml(config))
    assert load_config(path) == config


def test_a_resolved_configuration_is_not_changed_by_its_methods_again(file, tmp_path):
    file.write_text(MINIMAL + "methods: {ce: {epochs: 9}}\n")
    config = load_config(file, ["epochs=2"])
    path = tmp_path / "resolved.yaml"
    path.write_text(config_yaml(config))
    assert load_config(path).epochs == config.epochs == 2


def test_the_data_variable_is_the_only_one_filled_in(monkeypatch):
    monkeypatch.setenv("TPKD_DATA", "/data")
    assert expand_data("hf:$TPKD_DATA/weights/$HOME") == "hf:/data/weights/$HOME"
    monkeypatch.delenv("TPKD_DATA")
    with pytest.raises(InputError, match="expected the variable TPKD_DATA"):
        expand_data("$TPKD_DATA/x")


def test_keyed_errors_keep_the_innermost_key():
    with pytest.raises(ConfigError, match=r"^inner: bad$"), keyed("outer"), keyed("inner"):
        raise ValueError("bad")
    with pytest.raises(KeyError), keyed("outer"):
        raise KeyError("not about values")


def test_control_characters_in_keys_stay_on_one_line(file):
    file.write_text(MINIMAL + '"a\\nb\\e[2J": 1\n')
    assert r"a\nb\x1b[2J: unknown key" in refused(file)


@pytest.mark.parametrize("key", ["a" * 100_000, "a." * 100_000 + "b", "student.options." + "a." * 2_000 + "b"])
def test_a_key_without_end(file, key):
    assert len(refused(file, [f"{key}=1"])) < 2_000


@pytest.mark.parametrize("kind", ["fifo", "device", "link to a device"])
def test_a_configuration_that_is_not_a_file(tmp_path, kind):
    path = tmp_path / "run.yaml"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path = "/dev/zero"
    else:
        path.symlink_to("/dev/zero")
    assert "expected a regular file" in refused(path)


def test_values_of_the_program_are_not_parsed(file):
    for value in ("x #2", "null", "1e3", "[a]", "{a: b}", "!!python/name:os.system", "a\nb"):
        assert load_config(file, [("student.weights", value)]).student.weights == value
    assert load_config(file, ["epochs=3", ("epochs", 4)]).epochs == 4
    assert load_config(file, [("epochs", 4), "epochs=3"]).epochs == 3


def test_seeds_of_sections_follow_the_run_where_asked(file):
    config = load_config(file, ["by_seed=[data, student]", "seed=7"])
    assert (config.data.seed, config.student.seed) == (7, 7)
    assert load_config(file, ["by_seed=[data]", "seed=7"]).student.seed == 0
    again = resolve_config(yaml.safe_load(config_yaml(config)))
    assert again == config
    assert "data.seed: expected none beside by_seed: [data], found 3" in refused(
        file, ["by_seed=[data]", "data.seed=3", "seed=7"]
    )
    assert "data.test: expected none beside by_seed" in refused(file, ["by_seed=[data]", "data.test=0.2"])
