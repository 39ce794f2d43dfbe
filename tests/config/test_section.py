"""Values that no section accepts: numbers out of range, data that is not plain, paths that are not local."""

import pytest

from config.minimal import refused
from tpkd.config.loading import load_config


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("epochs=9223372036854775808", "epochs"),
        ("epochs=1000000001", "epochs"),
        ("batch_size=9223372036854775808", "batch_size"),
        ("limit=99999999999999999999", "limit"),
        ("workers=100000", "workers"),
        ("views.num_views=1000000000000", "views.num_views"),
        ("views.pad=100000", "views.pad"),
        ("views.size=1000000", "views.size"),
        ("views.scale=1e300", "views.scale"),
        ("views.scale=1e-320", "views.scale"),
        ("views.mean=[1e300]", "views.mean"),
        ("views.std=[1e-300]", "views.std"),
        ("optimizer.learning_rate=1e300", "optimizer.learning_rate"),
        ("optimizer.weight_decay=1e300", "optimizer.weight_decay"),
        ("clip_norm=1e-320", "clip_norm"),
        ("study.learning_rate=1e300", "study.learning_rate"),
        ("study.blocking.samples=99999999999999999999", "study.blocking.samples"),
        ("text.max_length=99999999999999999999", "text.max_length"),
        ("student.options.hidden=!!binary gIE=", "student.options"),
        ("student.options.hidden=2020-01-01", "student.options"),
        ("objective={name: tpkd, settings: {beta: .nan}}", "objective.settings"),
        ("methods={ce: {epochs: !!set {a}}}", "methods"),
    ],
)
def test_values_that_nothing_can_compute_with(file, override, key):
    assert refused(file, [override]).startswith(f"{file}: {key}")


PATH_KEYS = (
    *("output", "data.root", "student.weights", "student.probe_file", "initial.cache"),
    *("teacher.cache", "teacher.weights", "teacher.class_names", "teacher.test_logits"),
)


@pytest.mark.parametrize("key", PATH_KEYS)
@pytest.mark.parametrize(
    "path", ["s3://bucket/x", "hf+x.y-z://a", "HTTPS://example.org/x", '"a\\0b"', '"\\ud800"', '""']
)
def test_paths_that_no_disk_has(file, key, path):
    if (key, path) == ("teacher.cache", "s3://bucket/x"):
        assert load_config(file, ["teacher={cache: c}", f"{key}={path}"]).teacher.cache == path  # the one that is read
        return
    teacher = ["teacher={cache: c}"] if key.startswith("teacher") else []
    message = refused(file, [*teacher, f"{key}={path}"])
    assert message.startswith(f"{file}: {key}: expected a path on this machine")


@pytest.mark.parametrize(
    "override",
    [
        "data.name=csv:hdfs://bucket/x.csv",
        "data.name=folder:https://bucket/x",
        'data.name="jsonl:a\\0b"',
        "student.model=hf:s3://bucket/x",
    ],
)
def test_paths_behind_a_kind(file, override):
    message = refused(file, [override])
    assert message.startswith(f"{file}: {override.partition('=')[0]}: expected a path on this machine")


def test_data_may_be_in_a_store(file):
    assert load_config(file, ["data.name=csv:s3://bucket/x.csv"]).data.name == "csv:s3://bucket/x.csv"


def test_a_tokenizer_is_a_path_too(file):
    message = refused(file, ["student.options.tokenizer=s3://bucket/x"])
    assert message.startswith(f"{file}: student.options: tokenizer: expected a path on this machine")


def test_a_colon_is_not_a_scheme(file):
    config = load_config(file, ["output=./s3://x", "student.weights=C:/x.safetensors", "teacher.cache=a:b/c"])
    assert config.directory == "./s3://x"


def test_an_output_is_never_filled_in_from_the_environment(file):
    assert "output: expected a path without $TPKD_DATA" in refused(file, ["output=$TPKD_DATA/runs"])


def test_a_configuration_is_frozen(file):
    with pytest.raises(ValueError, match="frozen"):
        load_config(file).epochs = 3


def test_names_of_weights_may_be_numbers(file):
    config = load_config(file, ["student.weight_map={0: layers.0, '2': null}"])
    assert config.student.weight_map == {"0": "layers.0", "2": None}
    for wrong in ("{1.5: a}", "{a: 3}", "[a]"):
        assert "student.weight_map" in refused(file, [f"student.weight_map={wrong}"])
