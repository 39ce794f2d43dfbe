"""Tables of texts and labels: what is read, and which rows are refused."""

import json

import pytest

from tpkd.data.loading import load_dataset
from tpkd.errors import InputError


def as_jsonl(rows):
    return "\n".join(json.dumps({"text": text, "label": label, "other": 1}) for text, label in rows)


def as_csv(rows):
    return "label,note,text\r\n" + "\r\n".join(f'{label},x,"{text}"' for text, label in rows)


@pytest.mark.parametrize(("suffix", "write"), [("jsonl", as_jsonl), ("csv", as_csv)])
def test_tables_of_texts(tmp_path, suffix, write):
    train_rows = [("hello, you", "greet"), ("bye\nnow" if suffix == "csv" else "bye", "leave"), ("ça va", "greet")]
    (tmp_path / f"train.{suffix}").write_text(write(train_rows), encoding="utf-8")
    (tmp_path / f"test.{suffix}").write_text("\ufeff" + write([("ciao", "leave")]), encoding="utf-8")
    train, test = (load_dataset(f"{suffix}:{tmp_path}", split) for split in ("train", "test"))
    assert train.inputs == tuple(text for text, _ in train_rows)
    assert train.class_names == test.class_names == ("greet", "leave")
    assert train.labels.tolist() == [0, 1, 0]
    assert (test.labels.tolist(), test.ids.tolist()) == ([1], [3])
    alone = load_dataset(f"{suffix}:train.{suffix}", "train", root=tmp_path)
    assert alone.fingerprint == train.fingerprint
    with pytest.raises(InputError, match=f"expected a directory with train.{suffix} and test.{suffix}"):
        load_dataset(f"{suffix}:{tmp_path}/train.{suffix}", "test")


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
        ("a.jsonl", '{"text": "x"}', "a.jsonl: line 1: expected an object with text and label"),
        ("a.jsonl", '{"text": 1, "label": "a"}', "a.jsonl: line 1: text: expected a text, found 1"),
        ("a.jsonl", '{"text": "x", "label": 1.5}', "a.jsonl: line 1: label: expected a name or a whole number"),
        ("a.jsonl", '{"text": "x", "label": true}', "a.jsonl: line 1: label: expected a name or a whole number"),
        ("a.jsonl", "", "a.jsonl: expected at least one row, found none"),
        ("a.jsonl", "[" * 100_000, "a.jsonl: line 1: expected a JSON object"),
        ("a.csv", "words,label\nx,a\n", "a.csv: line 1: expected the columns text and label, found 'words, label'"),
        ("a.csv", "text,label\nx,a\ny\n", "a.csv: line 3: expected 2 fields as in line 1, found 1"),
        ("a.csv", 'text,label\nx,a\n"y"z,a\n', "a.csv: line 3: not CSV"),
        ("a.csv", "", "a.csv: line 1: expected the columns"),
    ],
)
def test_bad_rows_are_named_by_file_and_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message) as caught:
        load_dataset(f"{name.split('.')[1]}:{name}", "train", root=tmp_path)
    assert "\n" not in str(caught.value)


def test_a_test_label_that_training_never_saw_is_refused(tmp_path):
    (tmp_path / "train.csv").write_text("text,label\nx,a\n")
    (tmp_path / "test.csv").write_text("text,label\nx,b\n")
    with pytest.raises(InputError, match=r"test.csv: line 2: label: expected one of .*train.csv, found 'b'"):
        load_dataset(f"csv:{tmp_path}", "test")


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"text,label\n\xff\xfe,a\n")
    with pytest.raises(InputError, match=r"a.csv: damaged"):
        load_dataset("csv:a.csv", "train", root=tmp_path)
