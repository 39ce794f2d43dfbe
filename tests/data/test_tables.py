"""Tables of texts and labels: what is read, and which rows are refused."""

import json

import pytest

from data.tables import write_csv
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


def test_a_test_label_that_training_never_saw_is_refused(tmp_path):
    (tmp_path / "train.csv").write_text("text,label\nx,a\n")
    (tmp_path / "test.csv").write_text("text,label\nx,b\n")
    with pytest.raises(InputError, match=r"test.csv: line 2: label: expected one of .*train.csv, found 'b'"):
        load_dataset(f"csv:{tmp_path}", "test")


def test_the_line_of_a_label_that_training_never_saw_is_named(tmp_path):
    write_csv(tmp_path / "train.csv", ["x,greet", "y,leave"])
    write_csv(tmp_path / "test.csv", ["x,greet", "y,leafe"])
    with pytest.raises(InputError, match=r"test.csv: line 3: .*found 'leafe'; did you mean leave\?"):
        load_dataset(f"csv:{tmp_path}", "test")
