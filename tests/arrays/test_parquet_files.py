"""Arrays out of parquet files: a column per class, or lists."""

import json
import sys

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from tpkd.arrays import array_names, open_array, open_texts
from tpkd.errors import InputError

VALUES = np.random.default_rng(0).normal(size=(11, 3)).astype(np.float32)


def save(tmp_path, columns, metadata=None, **options):
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    parquet.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet", **options)
    return tmp_path / "a.parquet"


def wide(values=VALUES, names=("cat", "dog", "bird"), **beside):
    return {**beside, **{name: values[:, place] for place, name in enumerate(names)}}


def read(path, key="logits", rows=4):
    blocks = list(open_array(path, key=key).blocks(rows))
    assert all(len(block) == rows for block in blocks[:-1])
    return torch.cat(blocks)


@pytest.mark.parametrize("group", [1, 3, 4, 100])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_columns_over_row_groups(tmp_path, group, dtype):
    path = save(tmp_path, wide(VALUES.astype(dtype), id=[f"s{n}" for n in range(11)]), row_group_size=group)
    array = open_array(path)
    assert (array.shape, array.class_names) == ((11, 3), ("cat", "dog", "bird"))
    assert np.array_equal(read(path).numpy(), VALUES.astype(dtype))
    assert array.dtype == read(path).dtype


LISTS = {
    "list": pa.array(VALUES.tolist(), pa.list_(pa.float32())),
    "large list": pa.array(VALUES.tolist(), pa.large_list(pa.float32())),
    "fixed": pa.array(VALUES.tolist(), pa.list_(pa.float32(), 3)),
}


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("name", ["logits", "scores"])
def test_lists_with_the_class_names_in_the_metadata(tmp_path, kind, name):
    names = {"class_names": json.dumps(["cat", "dog", "bird"])}
    beside = {"text": ["hello"] * 11, "margin": np.zeros(11)}
    path = save(tmp_path, {**beside, name: LISTS[kind]}, metadata=names, row_group_size=5)
    assert np.array_equal(read(path).numpy(), VALUES)
    assert open_array(path).class_names == ("cat", "dog", "bird")


def test_sliced_lists_keep_their_rows(tmp_path):
    path = save(tmp_path, pa.table({"logits": LISTS["list"]})[4:], row_group_size=2)
    assert np.array_equal(read(path).numpy(), VALUES[4:])


def test_other_columns_by_key(tmp_path):
    ids, labels = np.arange(11, dtype=np.uint32) + 7, np.arange(11, dtype=np.int8) % 3
    path = save(tmp_path, wide(id=ids, label=labels))
    assert read(path, key="ids").tolist() == ids.tolist()
    assert read(path, key="labels").tolist() == labels.tolist()
    assert open_array(path, key="labels").dtype == torch.int64
    assert array_names(path) == ("bird", "cat", "dog", "id", "label")


def test_names_with_dots_are_columns_of_their_own(tmp_path):
    path = save(tmp_path, wide(names=("cat", "cat.small", "cat.large")))
    assert np.array_equal(read(path).numpy(), VALUES)


def test_columns_of_several_types_are_joined(tmp_path):
    path = save(tmp_path, {"cat": [1, 2], "dog": [0.5, 1.5], "bird": pa.array([1.5, 2.5], pa.float32())})
    assert (read(path).tolist(), open_array(path).dtype) == ([[1, 0.5, 1.5], [2, 1.5, 2.5]], torch.float64)
    path = save(tmp_path, {"cat": [True, False], "dog": pa.array([0, 1], pa.int8())})
    assert (read(path).tolist(), open_array(path).dtype) == ([[1, 0], [0, 1]], torch.int64)


def test_dictionaries_are_read_as_what_they_stand_for(tmp_path):
    values = pa.array([0.5, 1.5, 0.5]).dictionary_encode()
    path = save(
        tmp_path, {"cat": values, "dog": [1.0, 2.0, 3.0], "label": pa.array(["x", "y", "x"]).dictionary_encode()}
    )
    assert read(path).tolist() == [[0.5, 1.0], [1.5, 2.0], [0.5, 3.0]]
    assert list(open_texts(path).blocks(2)) == [["x", "y"], ["x"]]


def test_a_table_of_pandas_with_its_index(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(VALUES, columns=["cat", "dog", "bird"], index=range(5, 16))
    frame[frame.cat > -9].iloc[[3, 1, 2]].to_parquet(tmp_path / "a.parquet")
    assert np.array_equal(read(tmp_path / "a.parquet").numpy(), VALUES[[3, 1, 2]])


REFUSED = {
    "a gap": ({"cat": [1.0, None], "dog": [1.0, 2.0]}, "row 1: column 'cat': expected a value, found none"),
    "a gap in a later group": (
        {"cat": [1.0, 2.0, 3.0, 4.0, None], "dog": [1.0] * 5},
        "row 4: column 'cat': expected a value, found none",
    ),
    "a text": ({"cat": ["1", "2"], "dog": [1.0, 2.0]}, "column 'cat': expected numbers, found string"),
    "a decimal": ({"cat": pa.array([1, 2], pa.decimal128(9, 2)), "dog": [1, 2]}, "expected numbers, found decimal128"),
    "a date": ({"cat": pa.array([1, 2], pa.timestamp("s")), "dog": [1, 2]}, "expected numbers, found timestamp"),
    "a structure": ({"cat": [{"x": 1.0}], "dog": [1.0]}, "column 'cat': expected numbers, found struct"),
    "nothing but gaps": ({"cat": pa.nulls(2), "dog": [1.0, 2.0]}, "column 'cat': expected numbers, found null"),
    "binary": ({"logits": [b"ab", b"cd"]}, "column 'logits': expected numbers, found binary"),
    "lists in lists": ({"logits": [[[1.0]], [[2.0]]]}, "column 'logits': expected numbers, found list<"),
    "lists of texts": ({"logits": [["a"], ["b"]]}, "column 'logits': expected numbers, found list<"),
    "lists of several lengths": (
        {"logits": [[1.0, 2.0]] * 4 + [[1.0]]},
        "row 4: column 'logits': expected 2 numbers as in row 0, found 1",
    ),
    "no list": ({"logits": [[1.0, 2.0], None]}, "row 1: column 'logits': expected a value, found none"),
    "no list at first": ({"logits": pa.array([None, [1.0, 2.0]])}, "expected 1 to 16777216 numbers per row, found 0"),
    "empty lists": ({"logits": pa.array([[], []], pa.list_(pa.float32()))}, "numbers per row, found 0"),
    "a gap in a list": ({"logits": [[1.0, 2.0], [3.0, None]]}, "row 1: column 'logits': expected numbers, found a gap"),
    "no rows of lists": ({"logits": pa.array([], pa.list_(pa.float32()))}, "expected at least one row, found none"),
    "no columns": ({}, "expected columns of numbers, found none"),
    "numbers beyond int64": ({"label": pa.array([2**64 - 1, 1], pa.uint64())}, "damaged or not what"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_numbers_is_refused_with_its_column_and_row(tmp_path, name):
    columns, message = REFUSED[name]
    path = save(tmp_path, columns, row_group_size=3)
    with pytest.raises(InputError) as caught:
        read(path, rows=2)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert str(caught.value).isprintable()


def test_names_twice_and_names_that_are_none_are_refused(tmp_path):
    path = save(tmp_path, pa.table([VALUES[:, 0], VALUES[:, 1]], names=["cat", "cat"]))
    with pytest.raises(InputError, match=r"a\.parquet: duplicate column 'cat'"):
        read(path)
    path = save(tmp_path, {"logits": LISTS["list"]}, metadata={"class_names": "cat"})
    with pytest.raises(InputError, match=r"a\.parquet: metadata class_names: expected a JSON list of names"):
        read(path)


@pytest.mark.parametrize("compression", ["snappy", "none", "zstd"])
def test_every_cut_is_refused(tmp_path, compression):
    path = save(tmp_path, wide(), compression=compression)
    whole = path.read_bytes()
    for length in range(0, len(whole), 41):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"a\.parquet: "):
            read(path)


def test_a_flipped_byte_is_found_where_the_pages_have_checksums(tmp_path):
    path = save(tmp_path, wide(), compression="none", use_dictionary=False, write_page_checksum=True)
    data = bytearray(path.read_bytes())
    place = data.index(VALUES[:, 1].tobytes())
    data[place] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(InputError, match=r"a\.parquet: damaged .*CRC"):
        read(path)


def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    path = save(tmp_path, wide())
    for name in [name for name in sys.modules if name == "pyarrow" or name.startswith("pyarrow.")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=r"pyarrow is not installed: pip install 'tpkd\[data\]'"):
        open_array(path)
