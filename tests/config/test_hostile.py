"""Configurations that nobody means to write: every one is refused in one line, and at once."""

import itertools
import os
import time

import pytest

from config.minimal import MINIMAL, refused
from tpkd.config.loading import load_config


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("\x00", "not allowed"),
        ("\x07", "not allowed"),
        ("\ud800", "not allowed"),
        ("!!bool x", "expected a bool, found 'x'"),
        ("!!timestamp x", "expected a timestamp, found 'x'"),
        ("!!int ''", "expected an int, found ''"),
        ("2020-13-45 00:00:00", "expected a timestamp"),
        ("0b" + "1" * 20_000, "expected a number of at most 100 characters, found 20002"),
        ("1" + ":1" * 20_000, "expected a number of at most 100 characters, found 40001"),
        ("1" * 5000, "expected a number of at most 100 characters, found 5000"),
        ("[" * 100 + "]" * 100, "nested"),
    ],
)
def test_scalars_that_yaml_itself_stumbles_over(file, value, part):
    assert part in refused(file, [f"epochs={value}"])
    if not value.startswith("\ud800"):
        file.write_text(f"{MINIMAL}seed: {value}\n")
        message = refused(file)
        assert message.startswith(f"{file}: ")
        assert part in message


def test_control_characters_in_keys_stay_on_one_line(file):
    file.write_text(MINIMAL + '"a\\nb\\e[2J": 1\n')
    assert r"a\nb\x1b[2J: unknown key" in refused(file)


@pytest.mark.parametrize("key", ["a" * 100_000, "a." * 100_000 + "b", "student.options." + "a." * 2_000 + "b"])
def test_a_key_without_end(file, key):
    assert len(refused(file, [f"{key}=1"])) < 2_000


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
    teacher = ["teacher={cache: c}"] if key.startswith("teacher") else []
    message = refused(file, [*teacher, f"{key}={path}"])
    assert message.startswith(f"{file}: {key}: expected a path on this machine")


@pytest.mark.parametrize(
    "override",
    [
        "data.name=csv:s3://bucket/x.csv",
        "data.name=folder:gs://bucket/x",
        'data.name="jsonl:a\\0b"',
        "student.model=hf:s3://bucket/x",
    ],
)
def test_paths_behind_a_kind(file, override):
    message = refused(file, [override])
    assert message.startswith(f"{file}: {override.partition('=')[0]}: expected a path on this machine")


def test_a_tokenizer_is_a_path_too(file):
    message = refused(file, ["student.options.tokenizer=s3://bucket/x"])
    assert message.startswith(f"{file}: student.options: tokenizer: expected a path on this machine")


def test_a_colon_is_not_a_scheme(file):
    config = load_config(file, ["output=./s3://x", "student.weights=C:/x.safetensors", "teacher.cache=a:b/c"])
    assert config.directory == "./s3://x"


def test_an_output_is_never_filled_in_from_the_environment(file):
    assert "output: expected a path without $TPKD_DATA" in refused(file, ["output=$TPKD_DATA/runs"])


def test_a_key_that_is_not_a_word(file):
    file.write_text("? [a, b]\n: c\n")
    assert refused(file) == f"{file}: line 1: expected a plain key, found a list"
    file.write_text("a: {? {b: c} : d}\n")
    assert refused(file) == f"{file}: line 1: expected a plain key, found a dict"


def test_duplicate_keys_are_found_in_linear_time(file):
    def seconds(count):
        lines = "".join(f"k{number}: 1\n" for number in range(count))
        file.write_text(lines + "k0: 2\n")
        times = []
        for _ in range(3):
            start = time.process_time()
            assert "duplicate key 'k0'" in refused(file)
            times.append(time.process_time() - start)
        return min(times)

    # Eight times the keys take eight times as long, not 64 times.
    assert seconds(16_000) < 24 * seconds(2_000)


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


@pytest.mark.parametrize("name", ["".join(parts) for parts in itertools.product(("", "{", "{{", "}"), ("a", "{seed}"))])
def test_braces_can_be_said(file, name):
    from tpkd.config.output import literal_output

    assert load_config(file, [("output", literal_output(name))]).directory == name
