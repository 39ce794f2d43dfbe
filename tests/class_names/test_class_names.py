"""Class names are compared wherever two lists of them meet."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from tpkd.class_names import (
    METADATA_KEY,
    check_class_names,
    check_declared_names,
    class_positions,
    from_metadata,
    names_from_id2label,
    read_class_names,
    recorded_names,
    to_metadata,
)
from tpkd.errors import InputError

NAMES = ("cat", "dog", "horse")


def check(found, expected, **more):
    check_class_names(found, expected, found_in="weights", expected_in="the data", **more)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (NAMES, NAMES),
        (("Cat", "DOG", " horse"), NAMES),
        (None, NAMES),
        (NAMES, ()),
        (("LABEL_0", "LABEL_1", "LABEL_2"), NAMES),
        (("0", "1", "2"), NAMES),
        (NAMES, ("0", "1", "2")),
    ],
)
def test_the_same_names_and_sides_without_names_pass(found, expected):
    check(found, expected)


@pytest.mark.parametrize(
    ("found", "expected", "problem"),
    [
        (("cat", "horse", "dog"), NAMES, "class 1: expected 'dog' as in the data, found 'horse': .*another order"),
        (("cat", "dog", "cow"), NAMES, "class 2: expected 'horse' as in the data, found 'cow'$"),
        (("cat", "dog"), NAMES, "expected 3 classes as in the data, found 2$"),
        ((*NAMES, "cow"), NAMES, "expected 3 classes as in the data, found 4$"),
        (("0", "10", "2"), ("0", "2", "10"), "class 1: expected '2' as in the data, found '10': .*another order"),
        (("LABEL_1", "LABEL_0"), ("LABEL_0", "LABEL_1", "x"), "class 0"),
        # Numbers of classes are not names, but the same numbers in another order are another order.
        (tuple(sorted(map(str, range(12)))), tuple(map(str, range(12))), "class 2: expected '2' .* found '10'"),
        # Names that differ in case alone are compared as they are.
        (("a", "A", "b"), ("A", "a", "b"), "class 0: expected 'A' .* found 'a': the same names in another order"),
    ],
)
def test_other_names_and_another_order_are_refused(found, expected, problem):
    with pytest.raises(InputError, match=f"^weights: {problem}"):
        check(found, expected)


def test_the_message_ends_with_the_way_out():
    with pytest.raises(InputError, match=r"another order; set teacher\.class_names$"):
        check(("dog", "cat"), ("cat", "dog"), way_out="set teacher.class_names")


@pytest.mark.parametrize("declared", [NAMES, ("chat", "chien", "cheval"), ("cat", "chien", "horse")])
def test_a_list_of_the_user_may_name_classes_differently(declared):
    check_declared_names(declared, NAMES, file="names.txt", network="weights")


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        (("dog", "cat", "horse"), "class 0: found 'dog', which is class 1 of weights"),
        (("chat", "Horse", "cheval"), "class 1: found 'Horse', which is class 2 of weights"),
        (("cat", "dog"), "expected the 3 classes of weights, found 2"),
    ],
)
def test_a_list_of_the_user_that_contradicts_the_network_is_refused(declared, problem):
    with pytest.raises(InputError, match=f"^names.txt: {problem}"):
        check_declared_names(declared, NAMES, file="names.txt", network="weights")


def test_numbers_in_another_order_are_a_contradiction():
    with pytest.raises(InputError, match="class 0: found '1', which is class 1 of weights"):
        check_declared_names(("1", "0"), ("0", "1"), file="names.txt", network="weights")


@pytest.mark.parametrize(
    ("id2label", "names"),
    [
        ({0: "cat", 1: "dog"}, ("cat", "dog")),
        ({"1": "dog", "0": "cat"}, ("cat", "dog")),
        ({0: "LABEL_0", 1: "LABEL_1"}, None),
        ({1: "cat", 2: "dog"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_names_of_a_transformers_configuration(id2label, names):
    assert names_from_id2label(id2label) == names


def test_names_survive_metadata():
    assert from_metadata(to_metadata(("Köln", 'a "b"', "c,d"))) == ("Köln", 'a "b"', "c,d")
    assert from_metadata(to_metadata(None)) is None
    assert from_metadata(None) is None


@pytest.mark.parametrize("text", ["{", '{"a": 1}', "[1, 2]", "[" * 100_000])
def test_metadata_that_are_no_list_of_names_are_refused(text):
    with pytest.raises(InputError, match="class_names: expected a JSON list of names"):
        from_metadata({METADATA_KEY: text})


def test_names_are_read_from_every_kind_of_file(tmp_path):
    (tmp_path / "names.txt").write_text("\ufeffcat\r\ndog\r\nhorse\r\n\r\n", encoding="utf-8")
    (tmp_path / "names.json").write_text(json.dumps(NAMES))
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {str(n): name for n, name in enumerate(NAMES)}}))
    save_file({"x": np.zeros(1)}, tmp_path / "names.safetensors", metadata=to_metadata(NAMES))
    for file in ("names.txt", "names.json", "config.json", "names.safetensors"):
        assert read_class_names(tmp_path / file) == NAMES, file


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("names.txt", "cat\n\ndog\n", "line 2: expected a name, found an empty line"),
        ("names.txt", "\n", "expected one class name per line, found none"),
        ("names.json", "[1, 2]", "expected a JSON list of names or the id2label of a network, found neither"),
        ("names.json", '{"id2label": {"0": "LABEL_0", "1": "LABEL_1"}}', "found neither"),
        ("names.json", "{", "damaged"),
        ("names.safetensors", "", "damaged"),
    ],
)
def test_files_without_names_are_refused(tmp_path, file, content, problem):
    (tmp_path / file).write_text(content)
    with pytest.raises(InputError, match=f"{file}: .*{problem}|{file}: {problem}"):
        read_class_names(tmp_path / file)


def test_weights_without_names_have_none_recorded(tmp_path):
    save_file({"x": np.zeros(1)}, tmp_path / "w.safetensors")
    assert recorded_names(tmp_path / "w.safetensors") is None
    with pytest.raises(InputError, match="expected class names in its metadata, found none"):
        read_class_names(tmp_path / "w.safetensors")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["Cat", " dog "], {"Cat": 0, "cat": 0, "dog": 1}),
        (["a", "A", "b"], {"a": 0, "A": 1, "b": 2}),
        (["crane", "dog", "crane"], {"dog": 1}),
    ],
)
def test_positions_by_name_leave_out_names_of_several_classes(names, expected):
    assert class_positions(names) == expected
