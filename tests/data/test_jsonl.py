"""JSON lines: which values are read, and which lines are refused."""

import json

import pytest

from tpkd.data.loading import load_dataset
from tpkd.errors import InputError


def test_numbers_are_labels_by_their_digits(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "x", "label": 7}\n\n{"text": "y", "label": "10"}\n')
    data = load_dataset("jsonl:a.jsonl", "train", root=tmp_path)
    assert data.class_names == ("7", "10")
    assert data.labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "x", "label": "a"}\n{"text": "x"', "a.jsonl: line 2: expected a JSON object"),
        ("a.jsonl", '["x", "a"]', "a.jsonl: line 1: expected an object with text and label"),
        ("a.jsonl", '{"text": "x"}', "a.jsonl: line 1: expected the columns text and label, found 'text'"),
        (
            "a.jsonl",
            '{"text": "x", "label": "a"}\n{"text": "y"}',
            "a.jsonl: line 2: expected an object with text and label",
        ),
        ("a.jsonl", '{"text": 1, "label": "a"}', "a.jsonl: line 1: text: expected a text, found 1"),
        ("a.jsonl", '{"text": "x", "label": 1.5}', "a.jsonl: line 1: label: expected a name or a whole number"),
        ("a.jsonl", '{"text": "x", "label": true}', "a.jsonl: line 1: label: expected a name or a whole number"),
        ("a.jsonl", "", "a.jsonl: expected at least one row, found none"),
        ("a.jsonl", "[" * 100_000, "a.jsonl: line 1: expected a JSON object"),
    ],
)
def test_bad_rows_are_named_by_file_and_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        load_dataset(f"{name.split('.')[1]}:{name}", "train", root=tmp_path)
    assert "\n" not in str(caught.value)


def test_a_key_that_is_there_twice_is_refused(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "x", "label": "a", "label": "b"}\n')
    with pytest.raises(InputError, match=r"train.jsonl: line 1: duplicate key 'label'"):
        load_dataset(f"jsonl:{tmp_path}", "train")


@pytest.mark.parametrize(("text", "label"), [("", "a"), (" \n", "a"), ("x", " a")])
def test_json_lines_are_held_to_the_same_rules(tmp_path, text, label):
    (tmp_path / "train.jsonl").write_text(json.dumps({"text": text, "label": label}))
    with pytest.raises(
        InputError, match=r"train.jsonl: line 1: (text: expected a text|label: expected no white space)"
    ):
        load_dataset(f"jsonl:{tmp_path}", "train")
