"""Parquet and Arrow files that unpack to more than they hold, or whose columns are of other types."""

import json
import os

import datasets
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tpkd.data import arrow_tables
from tpkd.data.arrow_tables import column_values, read_arrow, read_parquet
from tpkd.data.loading import load_dataset
from tpkd.errors import InputError

ROWS = {"text": ["hello", "bye", "hey"], "label": ["greet", "leave", "greet"]}
LONG = 1_000_000


def write_parquet(table, path):
    parquet.write_table(table, path)


def write_arrow(table, path):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


WRITERS = {"parquet": write_parquet, "arrow": write_arrow}


def repeated(text, times):
    """One text, written once and pointed at many times."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(times, np.int32)), pa.array([text]))


@pytest.mark.parametrize("kind", WRITERS)
def test_only_the_columns_asked_for_are_read(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    WRITERS[kind](pa.table({"other": [1.0, 2.0, 3.0]} | ROWS), path)
    read = read_parquet if kind == "parquet" else read_arrow
    assert read(path, ["text"]).to_pydict() == {"text": ROWS["text"]}


@pytest.mark.parametrize("kind", WRITERS)
def test_columns_of_repeated_values_are_read(tmp_path, kind):
    table = pa.table({name: pa.array(values).dictionary_encode() for name, values in ROWS.items()})
    WRITERS[kind](table, tmp_path / f"a.{kind}")
    data = load_dataset(f"{kind}:{tmp_path}/a.{kind}", "train")
    assert (data.inputs, data.labels.tolist()) == (tuple(ROWS["text"]), [0, 1, 0])


@pytest.mark.parametrize("kind", WRITERS)
def test_what_the_library_knows_about_columns_is_kept(tmp_path, kind):
    features = datasets.Features(
        row=datasets.Value("int64"), text=datasets.Value("string"), label=datasets.ClassLabel(names=["leave", "greet"])
    )
    rows = datasets.Dataset.from_dict({"row": [0, 1], "text": ["a", "b"], "label": [1, 0]}, features=features)
    WRITERS[kind](rows.data.table, tmp_path / f"a.{kind}")
    assert load_dataset(f"{kind}:{tmp_path}/a.{kind}", "train").class_names == ("leave", "greet")


BOMBS = {
    "texts in parquet": ("parquet", {"text": repeated("z" * LONG, 20_000), "label": pa.array(["a"] * 20_000)}),
    "texts in arrow": ("arrow", {"text": repeated("z" * LONG, 20_000), "label": pa.array(["a"] * 20_000)}),
    "rows in arrow": ("arrow", {"text": pa.nulls(10**9), "label": pa.nulls(10**9)}),
}


@pytest.mark.parametrize("case", BOMBS)
def test_a_small_file_that_unpacks_without_end_is_refused(tmp_path, case):
    kind, columns = BOMBS[case]
    path = tmp_path / f"a.{kind}"
    WRITERS[kind](pa.table(columns), path)
    assert path.stat().st_size < 2 * LONG
    before = pa.total_allocated_bytes()
    with pytest.raises(InputError, match=rf"a.{kind}: .*expected at most \d+ (bytes when unpacked|rows in \d+ bytes)"):
        load_dataset(f"{kind}:{path}", "train")
    assert pa.total_allocated_bytes() - before < 1 << 30


def test_a_run_of_one_value_counts_as_its_rows(tmp_path):
    column = pa.RunEndEncodedArray.from_arrays(pa.array([10**8], pa.int32()), pa.array(["x"]))
    write_arrow(pa.table({"text": column, "label": column}), tmp_path / "a.arrow")
    with pytest.raises(InputError, match=r"a.arrow: expected at most \d+ rows in \d+ bytes, found 100000000"):
        load_dataset(f"arrow:{tmp_path}/a.arrow", "train")


def test_rows_and_bytes_grow_with_the_file():
    assert arrow_tables.unpacked_limit(10) < arrow_tables.unpacked_limit(10**6)
    arrow_tables.check_rows("a", arrow_tables.ROWS, 0)
    with pytest.raises(InputError, match="a: expected at most 1000000 rows in 0 bytes, found 1000001"):
        arrow_tables.check_rows("a", arrow_tables.ROWS + 1, 0)


@pytest.mark.parametrize(
    "values", [[1.5], [True], [b"x"], [["x"]], [{"x": 1}], [None]], ids=lambda values: type(values[0]).__name__
)
def test_columns_of_other_types_are_refused_by_their_type(values):
    with pytest.raises(InputError, match="a: label: expected names, found a column of "):
        column_values("a", "label", pa.chunked_array([values]), "names")


@pytest.fixture
def saved(tmp_path):
    datasets.DatasetDict(train=datasets.Dataset.from_dict(ROWS)).save_to_disk(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.parametrize("name", ["../../pipe", "/etc/passwd", "..", "", 3, None, "a/../../pipe"])
def test_saved_files_that_lead_out_of_the_folder_are_refused(saved, name):
    os.mkfifo(saved.parent / "pipe")  # whoever opens it waits
    path = saved / "train/state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"_data_files": [{"filename": name}]}))
    with pytest.raises(InputError, match=r"state.json: expected names of files and parts in this folder, found "):
        load_dataset(f"disk:{saved}", "train")


@pytest.mark.parametrize(
    "state", ["[]", "[" * 100_000, '{"splits": 7}', '{"_data_files": "x"}', '{"splits": ["../x"]}', "{"]
)
@pytest.mark.parametrize("name", ["dataset_dict.json", "train/state.json"])
def test_hostile_state_of_saved_data_is_one_line(saved, name, state):
    (saved / name).write_text(state)
    with pytest.raises(InputError, match=rf"{name}: ") as caught:
        load_dataset(f"disk:{saved}", "train")
    assert len(str(caught.value)) < 400 + len(str(saved))


def test_saved_columns_of_repeated_values_are_refused_before_they_are_unpacked(saved):
    path = next(saved.rglob("*.arrow"))
    table = pa.table({"text": repeated("z" * LONG, 20_000), "label": ["a"] * 20_000})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(InputError, match=r"text: expected what save_to_disk writes, found dictionary<"):
        load_dataset(f"disk:{saved}", "train")
