"""YAML that is not plain data, or that PyYAML itself stumbles over, is refused in one line."""

import time

import pytest
import yaml

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


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "expected keys and values, found NoneType"),
        ("- a\n- b\n", "expected keys and values, found list"),
        ("a: [1\n", "line 2"),
        ("a: 1\na: 2\n", "line 2: duplicate key 'a'"),
        ("data: {name: a, name: b}\n", "duplicate key 'name'"),
        ("a: &x [1, 2]\nb: *x\n", "line 2: aliases are not allowed"),
        ("a: !!python/object/apply:os.system ['touch /tmp/owned']\n", "could not determine a constructor"),
        ("a: !!python/name:os.system\n", "could not determine a constructor"),
        ("a: !include other.yaml\n", "could not determine a constructor"),
        ("? [a, b]\n: c\n", "expected a plain key"),
        ("one: 2\n", "one: unknown key"),
        ("1: 2\n", "Keys should be strings"),
    ],
)
def test_yaml_that_is_not_plain_data_is_refused(file, text, part):
    file.write_text(text)
    assert part in refused(file)


def test_deep_nesting_is_refused_and_not_followed_to_the_end(file):
    file.write_text("a: " + "[" * 20_000)
    assert str(file) in refused(file)


def test_yaml_needs_no_unsafe_loader(file):
    assert yaml.safe_load(file.read_text())["epochs"] == load_config(file).epochs
