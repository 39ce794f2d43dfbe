"""Names of examples, and the rows of a cache that they belong to."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tpkd.diagnosis.ids import check_ids, read_ids, read_keys
from tpkd.errors import InputError


def test_names_of_a_few_rows(tmp_path):
    path = tmp_path / "ids.txt"
    path.write_text("a\nb\nc\n")
    assert read_ids(path, [2, 0]) == {0: "a", 2: "c"}
    assert read_ids(None, [5]) == {5: "5"}


def test_keys_with_and_without_views(tmp_path):
    np.save(tmp_path / "samples.npy", np.array([4, 2]))
    samples, views = read_keys(tmp_path / "samples.npy")
    assert (samples.tolist(), views) == ([4, 2], None)
    (tmp_path / "both.txt").write_text("4 1\n2,0\n")
    samples, views = read_keys(tmp_path / "both.txt")
    assert (samples.tolist(), views.tolist()) == ([4, 2], [1, 0])


def test_more_fewer_and_no_ids_are_refused(tmp_path):
    path = tmp_path / "ids.txt"
    path.write_text("1\n2\n")
    with pytest.raises(InputError, match=r"ids\.txt: expected 3 ids as in teacher, found 2"):
        check_ids(path, 3, "teacher")
    path.write_text("")
    with pytest.raises(InputError, match=r"ids\.txt: expected the sample id of every example, found none"):
        read_keys(path)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("ids.csv", "a,1\nb,2\n", ["a,1", "b,2"]),
        ("ids.csv", "7,1\n8,2\n", ["7,1", "8,2"]),
        ("ids.csv", 'text,"id"\nhello,x7\nbye,x8\n', ["x7", "x8"]),
        ("ids.tsv", "id\tcat\tdog\n7\t1.5\t2\n8\t1\t2\n", ["7", "8"]),
    ],
)
def test_lines_of_a_table_are_names_unless_it_has_a_column_of_ids(tmp_path, name, text, expected):
    (tmp_path / name).write_text(text)
    assert list(read_ids(tmp_path / name, [0, 1]).values()) == expected


@pytest.mark.parametrize("ids", [["a", "b"], [7, 8]])
def test_ids_of_parquet_and_arrays_of_texts(tmp_path, ids):
    parquet.write_table(pa.table({"sample_id": ids, "cat": [1.0, 2.0], "dog": [1.0, 2.0]}), tmp_path / "a.parquet")
    np.save(tmp_path / "a.npy", np.array(ids))
    for name in ("a.parquet", "a.npy"):
        assert list(read_ids(tmp_path / name, [0, 1]).values()) == [str(one) for one in ids]
