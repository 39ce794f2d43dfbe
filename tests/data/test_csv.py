"""Comma-separated values whose rows or columns are not what they seem."""

import pytest

from data.tables import write_csv
from tpkd.data.loading import load_dataset
from tpkd.errors import InputError


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (["x,a", "hello, you,a"], r"line 3: expected 2 fields as in line 1, found 3.*quotation marks"),
        (["x,a", "text,label", "y,a"], r"line 3: expected a row, found the column names again"),
    ],
)
def test_rows_that_are_not_what_they_seem_are_refused(tmp_path, rows, problem):
    write_csv(tmp_path / "train.csv", rows)
    with pytest.raises(InputError, match=f"train.csv: {problem}"):
        load_dataset(f"csv:{tmp_path}", "train")


def test_a_row_with_too_few_fields_is_refused(tmp_path):
    write_csv(tmp_path / "train.csv", ["x,a,note", "y,a"], header="text,label,note")
    with pytest.raises(InputError, match="line 3: expected 3 fields as in line 1, found 2"):
        load_dataset(f"csv:{tmp_path}", "train")


@pytest.mark.parametrize("header", ["text,label,label", "text,text,label", "text,label,text"])
def test_a_column_that_is_there_twice_is_refused(tmp_path, header):
    write_csv(tmp_path / "train.csv", ["x,y,a"], header=header)
    with pytest.raises(InputError, match=r"train.csv: line 1: duplicate column '(text|label)'"):
        load_dataset(f"csv:{tmp_path}", "train")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
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


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"text,label\n\xff\xfe,a\n")
    with pytest.raises(InputError, match=r"a.csv: damaged"):
        load_dataset("csv:a.csv", "train", root=tmp_path)
