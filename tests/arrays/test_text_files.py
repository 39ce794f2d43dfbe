"""Numbers and texts in `.csv` and `.tsv` files, and texts in lines."""

import tracemalloc
from itertools import chain

import numpy as np
import pytest
import torch

from tpkd.arrays import array_names, open_array, open_texts
from tpkd.errors import InputError
from tpkd.files import MAX_LINE_LENGTH


def write(tmp_path, text, suffix=".csv"):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def values(path, key="logits"):
    return torch.cat(list(open_array(path, key=key).blocks(2))).tolist()


READ = {
    "without names": ("1,2.5,-3e-2\n.5,+2,0\n", [[1, 2.5, -0.03], [0.5, 2, 0]], None),
    "with names": ("cat,dog,bird\n1,2,3\n", [[1, 2, 3]], ("cat", "dog", "bird")),
    "as pandas writes": (",0,1,2\n0,1.5,2,3\n1,4,5,6\n", [[1.5, 2, 3], [4, 5, 6]], None),
    "as pandas writes without its index": ("0,1,2\n1.5,2,3\n", [[1.5, 2, 3]], None),
    "as Excel writes": ("\ufeffcat,dog,bird\r\n1,2,3\r\n\r\n4,5,6\r\n", [[1, 2, 3], [4, 5, 6]], ("cat", "dog", "bird")),
    "quoted": ('"a, b","c\nd",e\n"1",2,3\n', [[1, 2, 3]], ("a, b", "c\nd", "e")),
    "spaces": (" cat , dog ,bird\n 1, 2 ,3\n", [[1, 2, 3]], ("cat", "dog", "bird")),
    "labels and ids beside": ("id,label,cat,dog,bird\na7,dog,1,2,3\n", [[1, 2, 3]], ("cat", "dog", "bird")),
    "years as classes": ("id,1990,2000,2010\n7,1,2,3\n", [[1, 2, 3]], ("1990", "2000", "2010")),
    "no line end": ("1,2,3", [[1, 2, 3]], None),
    "many digits": ("0.1234567890123456789,1e300,5e-324\n", [[0.12345678901234568, 1e300, 5e-324]], None),
}


@pytest.mark.parametrize("name", READ)
def test_numbers_and_names(tmp_path, name):
    text, rows, names = READ[name]
    path = write(tmp_path, text)
    array = open_array(path)
    assert (values(path), array.class_names, array.shape) == (rows, names, (len(rows), 3))
    assert array.dtype == torch.float64


def test_not_a_number_is_read_and_left_to_who_wants_it_finite(tmp_path):
    path = write(tmp_path, "1,nan,inf\n-INF,2,3\n")
    assert str(values(path)) == "[[1.0, nan, inf], [-inf, 2.0, 3.0]]"


@pytest.mark.parametrize(
    ("text", "key", "expected", "dtype"),
    [
        ("3\n-100\n0\n", "labels", [3, -100, 0], torch.int64),
        ("label\n3\n1\n", "labels", [3, 1], torch.int64),
        ("anything\n3\n1\n", "labels", [3, 1], torch.int64),
        ("text,category\nhello,3\nbye,1\n", "labels", [3, 1], torch.int64),
        ("id,cat,dog,label\n70,1,2,1\n71,3,4,0\n", "ids", [70, 71], torch.int64),
        ("label\n3\n1.0\n", "labels", [3.0, 1.0], torch.float64),
        ("label\n3\n9999999999999999999\n", "labels", [3.0, 1e19], torch.float64),
    ],
)
def test_a_column_is_whole_numbers_where_all_of_them_are(tmp_path, text, key, expected, dtype):
    path = write(tmp_path, text)
    array = open_array(path, key=key)
    assert (values(path, key), array.dtype, array.shape) == (expected, dtype, (len(expected),))


def test_tabs(tmp_path):
    assert values(write(tmp_path, "a,b\tc\n1\t2\n", ".tsv")) == [[1, 2]]
    assert array_names(tmp_path / "a.tsv") == ("a,b", "c")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat\ndog\n", ["cat", "dog"]),
        ("label\ncat\ndog\n", ["cat", "dog"]),
        ("y\n3\n1\n", ["3", "1"]),
        ("text,label\nhello,cat\nbye,dog\n", ["cat", "dog"]),
        ('text,label\n"one, two","three\nfour"\n', ["three\nfour"]),
    ],
)
def test_texts_and_the_name_of_their_column(tmp_path, text, expected):
    assert list(chain.from_iterable(open_texts(write(tmp_path, text)).blocks(5))) == expected


def test_a_table_with_a_column_per_class_has_no_texts(tmp_path):
    assert open_texts(write(tmp_path, "cat,dog\n0,1\n")) is None


def test_lines_are_texts(tmp_path):
    texts = open_texts(write(tmp_path, "cat, small\n\ndog\n", ".txt"))
    assert (texts.rows, list(texts.blocks(2))) == (3, [["cat, small", ""], ["dog"]])


REFUSED = {
    "a text": ("cat,dog\n1,2\n1,x\n", "line 3: column 'dog': expected a number, found 'x'"),
    "a text without names": ("1,2\n1,x\n", "line 2: column 2: expected a number, found 'x'"),
    "nothing": ("cat,dog\n1,\n", "line 2: column 'dog': expected a number, found ''"),
    "too few": ("1,2,3\n1,2\n", "line 2: expected 3 fields as in the first line, found 2"),
    "too many": ("1,2,3\n1,2,3,4\n", "line 2: expected 3 fields as in the first line, found 4"),
    "decimal commas": ("1,5;2,5\n", "line 1: expected names of columns or numbers, found '1' and '5;2'"),
    "semicolons": ("cat;dog\n1;2\n", "line 1: expected fields separated by commas, found semicolons; save it with"),
    "names and numbers": ("1.5,cat,2\n", "line 1: expected names of columns or numbers, found '1.5' and 'cat'"),
    "an open quotation mark": ('cat,dog\n"1,2\n', "line 2: not CSV: unexpected end of data"),
    "NUL": ("1,2\n\0,3\n", "expected a table of text, found a NUL"),
    "another encoding": ("caf\xe9,dog\n1,2\n".encode("latin-1"), "damaged or not what its suffix says"),
    "UTF-16": ("cat,dog\n1,2\n".encode("utf-16"), "damaged or not what its suffix says"),
    "a field without end": ("cat,dog\n1," + "1" * 200_000 + "\n", "line 2: not CSV: field larger than field limit"),
    "underscore": ("cat,dog\n1,0x10\n", "line 2: column 'dog': expected a number, found '0x10'"),
    "nothing at all": ("\n\n", "expected rows of numbers, found an empty file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_a_table_of_numbers_is_refused_with_its_line(tmp_path, name):
    text, message = REFUSED[name]
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        values(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["1" * (MAX_LINE_LENGTH + 9), '"\n",' * (MAX_LINE_LENGTH // 4 + 9)])
def test_rows_without_end_are_refused_before_they_fill_the_memory(tmp_path, text):
    path = write(tmp_path, text)
    with pytest.raises(InputError, match=r"a\.csv: (line 1: )?expected at most 16777216 characters"):
        values(path)


def test_blocks_need_no_more_memory_than_their_rows(tmp_path):
    path = tmp_path / "a.csv"
    np.savetxt(path, np.random.default_rng(0).normal(size=(4_000, 50)), delimiter=",", fmt="%.4g")
    array = open_array(path)
    tracemalloc.start()
    try:
        assert sum(len(block) for block in array.blocks(20)) == 4_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < path.stat().st_size / 2
